# Reports to aside what you run in this shell: `eval "$(aside shell-init bash)"` at the end of ~/.bashrc.
# A line that begins with a space is never reported. The report is made in the background and waits for nothing.

if [[ $- == *i* && -z ${_aside_program-} && -z ${CLAUDECODE-} && ${BASH_VERSINFO[0]}${BASH_VERSINFO[1]} -ge 44 ]]; then
  _aside_program=@PROGRAM@

  # In milliseconds.
  _aside_now() {
    if [[ -n ${EPOCHREALTIME-} ]]; then
      local micros=${EPOCHREALTIME/[.,]/}
      _aside_time=$((micros / 1000))
    else
      printf -v _aside_time '%(%s)T000' -1
    fi
  }

  # Takes the line, the exit code and how long it ran. What is short and well does not need a process.
  _aside_report() {
    [[ -z $1 || $1 == ' '* ]] && return
    (($2 == 0 && $3 < 1000)) && return
    ("$_aside_program" shell-report --exit-code "$2" --duration-ms "$3" -- "$1" </dev/null >/dev/null 2>&1 &)
  }

  _aside_preexec() {
    _aside_now
    _aside_start=$_aside_time _aside_line=${1-}
  }

  _aside_precmd() {
    local code=$?
    if [[ -n ${_aside_start-} ]]; then
      _aside_now
      _aside_report "$_aside_line" "$code" $((_aside_time - _aside_start))
      _aside_start=
    fi
    return "$code"
  }

  if [[ -n ${BLE_VERSION-} ]]; then
    blehook PREEXEC+=_aside_preexec PRECMD+=_aside_precmd
  elif [[ -n ${bash_preexec_imported-}${__bp_imported-} ]]; then
    preexec_functions+=(_aside_preexec)
    precmd_functions=(_aside_precmd "${precmd_functions[@]}")
  else
    # The line is the newest of the history. One that is not put there, as it begins with a space or is the one before again, is not
    # reported.
    _aside_number() {
      local HISTTIMEFORMAT=
      _aside_entry=$(history 1)
      [[ $_aside_entry =~ ^\ *([0-9]+)[*\ ]\ (.*)$ ]] || return 1
      _aside_index=${BASH_REMATCH[1]} _aside_entry=${BASH_REMATCH[2]}
    }
    _aside_start_line() {
      _aside_now
      _aside_start=$_aside_time
    }
    _aside_prompt() {
      local code=$?
      if [[ -n ${_aside_start-} ]]; then
        if _aside_number && [[ $_aside_index != "${_aside_last-}" ]]; then
          _aside_last=$_aside_index _aside_line=$_aside_entry
        else
          _aside_line=
        fi
        (exit "$code")
        _aside_precmd
      fi
      return "$code"
    }
    _aside_number && _aside_last=$_aside_index
    _aside_none=
    # It is expanded before a line runs, in this shell and not in a child, as the index of an array is.
    if [[ ${EPOCHREALTIME-} ]]; then
      PS0+='${_aside_none[_aside_start=${EPOCHREALTIME/[.,]/}/1000,0]}'
    else
      PS0+='${_aside_none[_aside_start=SECONDS*1000,0]}'
      _aside_now() { _aside_time=$((SECONDS * 1000)); }
    fi
    if [[ $(declare -p PROMPT_COMMAND 2>/dev/null) == 'declare -a'* ]]; then
      PROMPT_COMMAND=(_aside_prompt "${PROMPT_COMMAND[@]}")
    else
      PROMPT_COMMAND="_aside_prompt${PROMPT_COMMAND:+;$PROMPT_COMMAND}"
    fi
  fi
fi
