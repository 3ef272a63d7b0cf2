# From here on the script catches requests to stop (the warning, scancel) and sends them to the srun step once it
# runs: all processes then stop at the same time step and write a checkpoint. A process that does not handle
# signals yet ignores them, and does not notice that other processes end, so the script repeats them.
asked='' step=''
pass_on() { while sleep 0.2 && kill -USR2 "$step" 2>/dev/null; do sleep 5; done; }
trap 'asked=yes; [ -z "$step" ] || pass_on &' TERM INT HUP USR1 USR2
