# The step runs in the background, so that this script can still catch signals.
(
  trap '' TERM INT HUP USR1 USR2
  exec srun ${SLURM_CPUS_PER_TASK:+--cpus-per-task="$SLURM_CPUS_PER_TASK"} --kill-on-bad-exit=1 \
    sh -c 'trap "" TERM USR1 USR2; exec "$@"' sh "${simulator[@]}" run "$@"
) &
step=$!
[ -z "$asked" ] || pass_on &
while kill -0 $step 2>/dev/null; do wait $step; done # a signal ends `wait` early
wait $step
code=$?

# Exit code 3 means "stopped early, can continue". The job is requeued if the run advanced in it, the file
# RUN/stop did not request the stop, the job is still RUNNING (a cancelled job is COMPLETING), and it has not
# been requeued too often.
state() { grep -Eq "\"$1\": $2,?\$" "$run/state.json"; }
job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
job=${job:-$SLURM_JOB_ID}
if [ $code = 3 ] && state state '"stopped"' && state advanced true &&
  state restart_count "${SLURM_RESTART_COUNT:-0}" && ! state reason '".*file stop.*"' &&
  [ "$(squeue --noheader --job="$job" --format=%T)" = RUNNING ]; then
  if [ "${SLURM_RESTART_COUNT:-0}" -lt $max_restarts ]; then
    echo "stopped early: job $job goes back into the queue to continue"
    scontrol requeue "$job"
  else
    echo "stopped early, and came back $max_restarts times: submit the job again to continue"
  fi
fi
exit $code
