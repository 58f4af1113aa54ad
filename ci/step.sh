# Source this file in the scripts of CI. Do not source it in ci/setup.sh, which users source into their shells.
# step COMMAND...   prints the number of the step, the command, the time since the script began and the processor time since
#                   then of all that has ended, and runs the command
# steps FUNCTION    counts the steps of a function that only calls `step`, and runs them
step_number=0 step_count=0 counting=
step() {
    if [ -n "$counting" ]; then
        step_count=$((step_count + 1))
        return
    fi
    step_number=$((step_number + 1))
    local of=
    [ "$step_count" = 0 ] || of=" of $step_count"
    echo
    echo "== $step_number$of: $* (after $SECONDS s, with $(awk '{ print int(($16 + $17) / 100) }' "/proc/$$/stat" 2>/dev/null) s of processor time)"
    "$@"
}
steps() {
    counting=1
    "$1"
    counting=
    "$1"
}
