# Reports to aside what you run in this shell: `eval "$(aside shell-init zsh)"` at the end of ~/.zshrc.
# What the history does not keep is never reported, nor a line that begins with a space. The report is made in the background and waits
# for nothing.

if [[ -o interactive && -z ${_aside_program-} && -z ${CLAUDECODE-} ]]; then
  zmodload zsh/datetime zsh/parameter
  autoload -Uz add-zsh-hook
  typeset -g _aside_program=@PROGRAM@

  # Whether the history goes into a file.
  _aside_has_file() {
    [[ -n ${HISTFILE-} && $HISTFILE != /dev/null ]] && ((SAVEHIST > 0))
  }
  typeset -g _aside_had_file=
  _aside_has_file && _aside_had_file=1

  _aside_preexec() {
    typeset -g _aside_line=$1 _aside_number=$HISTCMD
    typeset -gF _aside_start=$EPOCHREALTIME
  }

  # Whether the user keeps the line private: by a space, by HISTORY_IGNORE, as the history was switched off since this shell began, or as
  # the history refused it. A refused line is there until the next one is added, so one is added: this runs in a child.
  _aside_is_private() {
    setopt localoptions extendedglob
    [[ $1 == [[:space:]]* || $1 == ${~${HISTORY_IGNORE:-}} ]] && return
    [[ -n $_aside_had_file ]] && ! _aside_has_file && return
    print -s -- ": aside $EPOCHREALTIME"
    [[ ${history[$2]-} != $1 ]]
  }

  # What is short and well does not need a process.
  _aside_precmd() {
    local code=$?
    local line=${_aside_line-}
    [[ -z $line ]] && return
    typeset -g _aside_line=
    local -i milliseconds=$(((EPOCHREALTIME - _aside_start) * 1000))
    ((code == 0 && milliseconds < 1000)) && return
    {
      _aside_is_private "$line" $_aside_number ||
        "$_aside_program" shell-report --exit-code $code --duration-ms $milliseconds -- "$line"
    } </dev/null >/dev/null 2>&1 &!
  }

  add-zsh-hook preexec _aside_preexec
  # First, as the exit code is that of the line only there.
  precmd_functions=(_aside_precmd $precmd_functions)
fi
