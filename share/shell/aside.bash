# Reports to aside what you run in this shell: `eval "$(aside shell-init bash)"` at the end of ~/.bashrc.
# What the history does not keep is never reported, nor a line that begins with a space. The report is made in the background and waits
# for nothing.

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

  # Whether the history goes into a file.
  _aside_has_file() {
    [[ -n ${HISTFILE-} && $HISTFILE != /dev/null && ${HISTSIZE-} != 0 && ${HISTFILESIZE-} != 0 ]]
  }
  _aside_had_file=
  _aside_has_file && _aside_had_file=1

  # Whether the user keeps the line private: by a space, by HISTIGNORE, or as the history was switched off since this shell began.
  _aside_is_private() {
    [[ $1 == [[:space:]]* || ! -o history ]] && return
    [[ -n $_aside_had_file ]] && ! _aside_has_file && return
    local pattern patterns
    IFS=: read -ra patterns <<<"${HISTIGNORE-}"
    for pattern in "${patterns[@]}"; do
      [[ $pattern != *'&'* && $1 == $pattern ]] && return
    done
    return 1
  }

  # Takes the line and the exit code. What is short and well does not need a process.
  _aside_report() {
    local line=$1 code=$2
    _aside_now
    local milliseconds=$((_aside_time - _aside_start))
    _aside_start=
    if [[ -z $line ]] || ((code == 0 && milliseconds < 1000)) || _aside_is_private "$line"; then
      return
    fi
    ("$_aside_program" shell-report --exit-code "$code" --duration-ms "$milliseconds" -- "$line" </dev/null >/dev/null 2>&1 &)
  }

  if [[ -n ${BLE_VERSION-} ]]; then
    _aside_preexec() {
      _aside_now
      _aside_start=$_aside_time _aside_line=${1-}
    }
    _aside_precmd() {
      local code=$?
      [[ -n ${_aside_start-} ]] && _aside_report "$_aside_line" "$code"
      return "$code"
    }
    blehook PREEXEC+=_aside_preexec PRECMD+=_aside_precmd
  else
    # The line is the newest entry of the history, if that entry was made between the end of PROMPT_COMMAND and the start of the line.
    # A line that is not put there, as it is private or the one before again, looks like that one and is not reported.
    _aside_newest() {
      local HISTTIMEFORMAT='%s ' entry
      entry=$(history 1)
      [[ $entry =~ ^\ *([0-9]+)([* ])\ ([0-9?]+)\ (.*)$ ]] || return 1
      _aside_index=${BASH_REMATCH[1]} _aside_edited=${BASH_REMATCH[2]} _aside_entry=${BASH_REMATCH[4]}
      _aside_mark="$_aside_index ${BASH_REMATCH[3]} $_aside_entry"
    }
    # First in PROMPT_COMMAND. With `erasedups` a new entry may have the number of the last one.
    _aside_prompt() {
      local code=$? mark=${_aside_mark-} line=
      if [[ -n ${_aside_start-} ]]; then
        if [[ -n $mark ]] && _aside_newest && ((_aside_index == _aside_number && _aside_index <= ${mark%% *} + 1)) &&
          [[ $_aside_edited == ' ' && $_aside_mark != "$mark" ]]; then
          line=$_aside_entry
        fi
        _aside_report "$line" "$code"
      fi
      _aside_mark=
      return "$code"
    }
    # Last in PROMPT_COMMAND: what runs between may read lines of other shells into the history.
    _aside_remember() {
      local code=$?
      _aside_mark=
      _aside_is_around && { _aside_newest || _aside_mark='0 '; }
      return "$code"
    }
    if [[ -n ${bash_preexec_imported-}${__bp_imported-} ]]; then
      # Its own argument may be an older line.
      precmd_functions=(_aside_prompt "${precmd_functions[@]}" _aside_remember)
      _aside_is_around() { [[ ${PROMPT_COMMAND[*]} != *history* ]]; }
    else
      _aside_wraps=0
      _aside_is_around() {
        [[ ${PROMPT_COMMAND[*]} == _aside_prompt*_aside_remember ]] && return
        ((_aside_wraps++ < 8)) && _aside_wrap
        return 1
      }
      _aside_wrap() {
        if [[ $(declare -p PROMPT_COMMAND 2>/dev/null) == 'declare -a'* ]]; then
          PROMPT_COMMAND=(_aside_prompt "${PROMPT_COMMAND[@]}" _aside_remember)
        else
          PROMPT_COMMAND=$'_aside_prompt\n'"${PROMPT_COMMAND-}"$'\n_aside_remember'
        fi
      }
      _aside_wrap
    fi
    _aside_none=
    # It is expanded before a line runs, in this shell and not in a child, as the index of an array is. 1 is HISTCMD without a history.
    if [[ ${EPOCHREALTIME-} ]]; then
      PS0+='${_aside_none[_aside_number=HISTCMD-1,_aside_start=${EPOCHREALTIME/[.,]/}/1000,0]}'
    else
      PS0+='${_aside_none[_aside_number=HISTCMD-1,_aside_start=SECONDS*1000,0]}'
      _aside_now() { _aside_time=$((SECONDS * 1000)); }
    fi
  fi
fi
