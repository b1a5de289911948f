# Reports to aside what you run in this shell: `eval "$(aside shell-init zsh)"` at the end of ~/.zshrc.
# A line that begins with a space is never reported. The report is made in the background and waits for nothing.

if [[ -o interactive && -z ${_aside_program-} && -z ${CLAUDECODE-} ]]; then
  zmodload zsh/datetime
  autoload -Uz add-zsh-hook
  typeset -g _aside_program=@PROGRAM@

  _aside_preexec() {
    typeset -g _aside_line=$1
    typeset -gF _aside_start=$EPOCHREALTIME
  }

  # What is short and well does not need a process.
  _aside_precmd() {
    local code=$?
    local line=${_aside_line-}
    [[ -z $line ]] && return
    typeset -g _aside_line=
    [[ $line == ' '* ]] && return
    local -i milliseconds=$(((EPOCHREALTIME - _aside_start) * 1000))
    ((code == 0 && milliseconds < 1000)) && return
    "$_aside_program" shell-report --exit-code $code --duration-ms $milliseconds -- "$line" </dev/null >/dev/null 2>&1 &!
  }

  add-zsh-hook preexec _aside_preexec
  # First, as the exit code is that of the line only there.
  precmd_functions=(_aside_precmd $precmd_functions)
fi
