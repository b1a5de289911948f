# Reports to aside what you run in this shell: `aside shell-init fish | source` in ~/.config/fish/config.fish.
# What the history does not keep is never reported, nor a line that begins with a space. The report is made in the background and waits
# for nothing.

if status is-interactive; and not set -q _aside_program; and not set -q CLAUDECODE
    set -g _aside_program @PROGRAM@
    # With an empty name the history goes into no file.
    set -q fish_history; and test -z "$fish_history"; and set -g _aside_had_no_file

    # Whether the user keeps the line private: by a space, in private mode, by a function of their own, or as the history was switched off
    # since this shell began.
    function _aside_is_private
        string match -qr '^\s' -- $argv[1]; and return
        test -n "$fish_private_mode"; and return
        set -q fish_history; and test -z "$fish_history"; and not set -q _aside_had_no_file; and return
        functions -q fish_should_add_to_history; and not fish_should_add_to_history $argv[1]
    end

    function _aside_postexec --on-event fish_postexec
        set -l code $status
        set -l line "$argv[1]"
        # What ends the shell has the exit code of the line before.
        string match -qr '^(\s*$|exit\b|logout\b)' -- $line; and return
        # What is short and well does not need a process.
        test $code -eq 0 -a "$CMD_DURATION" -lt 1000; and return
        _aside_is_private $line; and return
        $_aside_program shell-report --exit-code $code --duration-ms $CMD_DURATION -- $line </dev/null >/dev/null 2>&1 &
        disown $last_pid 2>/dev/null
    end
end
