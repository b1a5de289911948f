//! Which values the client accepts in its settings.
//!
//! Source: measured with 2.1.197 and 2.1.332, by settings with one value of each type next to a
//! hook that runs or does not. A type that one of the two accepts is accepted here. A value that is
//! a word of a list is only checked to be a string, as the lists grow with the versions.

use serde_json::Value;

use crate::harness::installation::{
    Type::{self, Array, Boolean, Null, Number, Object, Text},
    WrongValue,
};

/// Keys of the top level, by their types; other keys accept every type.
const TOP: &[(&[Type], &[&str])] = &[
    (
        &[Object],
        &[
            "breakReminder",
            "enabledPlugins",
            "env",
            "fileSuggestion",
            "hooks",
            "modelOverrides",
            "permissions",
            "pluginConfigs",
            "quietHours",
            "remote",
            "remoteTools",
            "sandbox",
            "skillOverrides",
            "spinnerVerbs",
            "statusLine",
            "voice",
            "worktree",
        ],
    ),
    (
        &[Array],
        &[
            "allowedChannelPlugins",
            "allowedHttpHookUrls",
            "allowedMarketplaces",
            "availableModels",
            "blockedMarketplaces",
            "claudeMdExcludes",
            "companyAnnouncements",
            "fallbackModel",
            "httpHookAllowedEnvVars",
            "pluginSuggestionMarketplaces",
            "sshConfigs",
            "strictKnownMarketplaces",
        ],
    ),
    (&[Array, Text], &["disabledMcpjsonServers", "enabledMcpjsonServers"]),
    (
        &[Text],
        &[
            "$schema",
            "advisorModel",
            "agent",
            "apiKeyHelper",
            "attributionProject",
            "autoMemoryDirectory",
            "autoUpdatesChannel",
            "awsAuthRefresh",
            "awsCredentialExport",
            "claudeMd",
            "defaultShell",
            "disableAutoMode",
            "downloadsMirrorUrl",
            "feedbackDrafts",
            "gcpAuthRefresh",
            "language",
            "minimumVersion",
            "model",
            "modelCatalogPublicKey",
            "modelCatalogUrl",
            "otelHeadersHelper",
            "outputStyle",
            "plansDirectory",
            "pluginTrustMessage",
            "prUrlTemplate",
            "processWrapper",
            "proxyAuthHelper",
            "requiredMaximumVersion",
            "requiredMinimumVersion",
            "timeZone",
            "totalTokensReminder",
            "tui",
        ],
    ),
    (
        &[Boolean],
        &[
            "agentPushNotifEnabled",
            "allowAllClaudeAiMcps",
            "allowClaudeInChromeWithManagedMcp",
            "allowManagedHooksOnly",
            "allowManagedMcpServersOnly",
            "allowManagedPermissionRulesOnly",
            "allowNestedModelAccessUnderForceLogin",
            "alwaysThinkingEnabled",
            "autoCompactEnabled",
            "autoContinueAtUsageLimit",
            "autoDreamEnabled",
            "autoMemoryEnabled",
            "autoScrollEnabled",
            "autoUploadSessions",
            "awaySummaryEnabled",
            "bashEditDiffEnabled",
            "channelsEnabled",
            "clawdFileProgressEnabled",
            "disableAgentView",
            "disableAllHooks",
            "disableArtifact",
            "disableBundledSkills",
            "disableClaudeAiConnectors",
            "disableCommandPluginSources",
            "disableDirectMcpSkills",
            "disableRemoteControl",
            "disableReplyCheck",
            "disableSideloadFlags",
            "disableSkillShellExecution",
            "disableWindowsBashCommandSplit",
            "disableWorkflows",
            "doneMeansMerged",
            "emojiCompletionEnabled",
            "enableAllProjectMcpServers",
            "enableArtifact",
            "enableWorkflows",
            "enforceAvailableModels",
            "fastMode",
            "fastModePerSessionOptIn",
            "fileCheckpointingEnabled",
            "forceRemoteSettingsRefresh",
            "idleCompaction",
            "includeCoAuthoredBy",
            "includeGitInstructions",
            "inputNeededNotifEnabled",
            "isolatePeerMachines",
            "precomputeCompactionEnabled",
            "prefersReducedMotion",
            "promptSuggestionEnabled",
            "remoteControlAtStartup",
            "respectGitignore",
            "respondToBashCommands",
            "responseComparisonEnabled",
            "showClearContextOnPlanAccept",
            "showMessageTimestamps",
            "showThinkingSummaries",
            "showTurnDuration",
            "skipDangerousModePermissionPrompt",
            "skipWebFetchPreflight",
            "skipWorkflowUsageWarning",
            "spinnerTipsEnabled",
            "switchModelsOnFlag",
            "syncClaudeAiPlugins",
            "syncClaudeAiSkills",
            "syntaxHighlightingDisabled",
            "terminalProgressBarEnabled",
            "terminalTitleFromRename",
            "todoFeatureEnabled",
            "totalTokensReminderAfterUserTurn",
            "verbose",
            "wheelScrollAccelerationEnabled",
            "workflowKeywordTriggerEnabled",
            "wslInheritsWindowsSettings",
        ],
    ),
    (&[Boolean, Object], &["attribution"]),
    (&[Number], &["cleanupPeriodDays", "feedbackSurveyRate", "skillListingBudgetFraction"]),
];

/// Keys of `permissions`; their items accept every type.
const PERMISSIONS: &[(&str, &[Type])] = &[
    ("allow", &[Array]),
    ("deny", &[Array]),
    ("ask", &[Array]),
    ("additionalDirectories", &[Array]),
    ("defaultMode", &[Text]),
];

/// The kinds of a hook's handler, each with a key that it needs.
const HANDLERS: &[(&str, &str)] = &[
    ("command", "command"),
    ("prompt", "prompt"),
    ("agent", "prompt"),
    ("http", "url"),
    ("mcp_tool", "tool"),
];

/// Finds a value for which the client skips the file.
pub(super) fn check(settings: &Value) -> Result<(), WrongValue> {
    for (types, keys) in TOP {
        for key in *keys {
            WrongValue::check(&[key], settings.get(key), types)?;
        }
    }
    let permissions = settings.get("permissions");
    for (key, types) in PERMISSIONS {
        WrongValue::check(&["permissions", key], permissions.and_then(|own| own.get(key)), types)?;
    }
    check_status_line(settings)?;
    let plugins = settings.get("enabledPlugins").and_then(Value::as_object);
    for (name, is_on) in plugins.into_iter().flatten() {
        WrongValue::check(&["enabledPlugins", name], Some(is_on), &[Boolean, Array])?;
    }
    let hooks = settings.get("hooks").and_then(Value::as_object);
    for (event, groups) in hooks.into_iter().flatten() {
        check_groups(event, groups)?;
    }
    Ok(())
}

fn check_status_line(settings: &Value) -> Result<(), WrongValue> {
    const KEY: &str = "statusLine";
    let Some(line) = settings.get(KEY) else { return Ok(()) };
    WrongValue::require(&[KEY, "type"], line.get("type"), &[Text])?;
    WrongValue::require(&[KEY, "command"], line.get("command"), &[Text])?;
    WrongValue::check(&[KEY, "padding"], line.get("padding"), &[Number])
}

fn check_groups(event: &str, groups: &Value) -> Result<(), WrongValue> {
    WrongValue::check(&["hooks", event], Some(groups), &[Array, Null])?;
    for (index, group) in groups.as_array().into_iter().flatten().enumerate() {
        let index = index.to_string();
        let path = |key| ["hooks", event, &index, key];
        WrongValue::check(&["hooks", event, &index], Some(group), &[Object])?;
        WrongValue::check(&path("matcher"), group.get("matcher"), &[Text])?;
        WrongValue::require(&path("hooks"), group.get("hooks"), &[Array])?;
        for (place, handler) in group.get("hooks").and_then(Value::as_array).into_iter().flatten().enumerate()
        {
            check_handler(&[event, &index, "hooks", &place.to_string()], handler)?;
        }
    }
    Ok(())
}

/// Checks a handler; `place` leads to it from `hooks`.
fn check_handler(place: &[&str; 4], handler: &Value) -> Result<(), WrongValue> {
    let [event, index, hooks, own] = *place;
    let path = |key| ["hooks", event, index, hooks, own, key];
    WrongValue::check(&["hooks", event, index, hooks, own], Some(handler), &[Object])?;
    WrongValue::require(&path("type"), handler.get("type"), &[Text])?;
    let kind = handler.get("type").and_then(Value::as_str).unwrap_or_default();
    let Some((_, needed)) = HANDLERS.iter().find(|(known, _)| *known == kind) else { return Ok(()) };
    WrongValue::require(&path(needed), handler.get(needed), &[Text])?;
    WrongValue::check(&path("timeout"), handler.get("timeout"), &[Number])?;
    WrongValue::check(&path("args"), handler.get("args"), &[Array])
}
