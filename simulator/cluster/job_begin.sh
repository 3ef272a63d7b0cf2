# From here on the script catches requests to stop (the warning, scancel) and sends them to the srun step once it
# runs: all processes then stop at the same time step and write a checkpoint. A process that does not handle
# signals yet ignores them, and does not notice that other processes end, so the script repeats them.
asked='' step=''
pass_on() { while sleep 0.2 && kill -USR2 "$step" 2>/dev/null; do sleep 5; done; }
trap 'asked=yes; [ -z "$step" ] || pass_on &' TERM INT HUP USR1 USR2

# A module that cannot be loaded ends the job with a line, instead of a run without it.
if declare -F module >/dev/null; then eval "site_$(declare -f module)"; else site_module() { return 127; }; fi
module() {
    site_module "$@" && return
    case $1 in load|add|swap|switch|restore) ;; *) return 1 ;; esac
    echo "job: 'module $*' failed on $(hostname); 'module avail' lists the modules" >&2
    exit 1
}
