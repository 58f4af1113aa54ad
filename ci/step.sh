# To be sourced by the scripts of CI, and not by ci/setup.sh, which is also sourced into shells of users.
# step COMMAND...: prints the command and the time since the script began, and runs it.
step() { echo; echo "== $* (after $SECONDS s)"; "$@"; }
