# Reports to aside what you run in this shell: `aside shell-init fish | source` in ~/.config/fish/config.fish.
# A line that begins with a space is never reported. The report is made in the background and waits for nothing.

if status is-interactive; and not set -q _aside_program; and not set -q CLAUDECODE
    set -g _aside_program @PROGRAM@

    function _aside_postexec --on-event fish_postexec
        set -l code $status
        set -l line "$argv[1]"
        # What ends the shell has the exit code of the line before.
        string match -qr '^( |\s*$|exit\b|logout\b)' -- $line; and return
        # What is short and well does not need a process.
        test $code -eq 0 -a "$CMD_DURATION" -lt 1000; and return
        $_aside_program shell-report --exit-code $code --duration-ms $CMD_DURATION -- $line </dev/null >/dev/null 2>&1 &
        disown $last_pid 2>/dev/null
    end
end
