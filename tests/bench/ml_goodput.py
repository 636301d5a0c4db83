#!/usr/bin/env python3
"""Compares time goodput with that of ml-goodput-measurement on the same events.

Run by hand:

    cargo build --release
    python3 tests/bench/ml_goodput.py

The first run makes a virtual environment of its own in target/ml-goodput-venv. Each case is one training of 200
steps of 10 s as a person would tell it, with the seconds that are truly productive. It is written twice: as calls
of the recorder of ml-goodput-measurement, which knows when steps *begin*, with a store in memory in place of the
cloud's log; and as events of `goodput measure`, which knows when they *end*. Both then say what they make of it.

What differs, and who is right (ml-goodput-measurement 0.2.3, read and run):

- It finds a disruption only where a step is recorded a second time. A training that resumes at the step after the
  last one counts the whole outage as the duration of that step, so as productive: 99.64 % of a time of which
  35.59 % is true. `goodput measure` finds the silence, or the new process, and says what is inferred. It is right:
  an hour without a step is not training.
- It knows when steps begin, not when they end, so the last step before a crash has no end and its time goes to the
  recovery: 6.74 % wasted and 20.92 % recovery where 7.09 % and 20.57 % are true. The productive share is the same.
- What is recorded after the last step is no loss: a checkpoint at the very end is left out (94.86 %, true are
  93.46 %). `goodput measure` is right.
- The first step of a process is cut down to the mean of the others, the rest is called program startup. `goodput
  measure` does the same with the median, as compilation, where the rest is more than a step and the log has no
  `compile` event; it says so. Both are right.
- Its parts need not add up: what nothing explains is cut off at 0. Here the rest is 'unattributed', and the sum is
  exact.
"""

import datetime
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from rivals import PROGRAM, enter_venv

enter_venv("ml-goodput-venv", ["ml-goodput-measurement==0.2.3"])

from ml_goodput_measurement.src import goodput, goodput_utils  # noqa: E402

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
STEP_SECONDS = 10
STEPS = 200


class Store:
    """What the recorder writes to and the calculator reads from, in memory."""

    def __init__(self):
        self.entries = []

    def write_cloud_logging_entry(self, entry):
        self.entries.append((goodput_utils.get_timestamp_from_log_entry(entry), entry))

    def read_cloud_logging_entries(self, start_time=None, end_time=None, last_entry_info=None):
        return [entry for _, entry in self.entries], None

    def flush(self):
        pass


class Training:
    """Tells both programs of one training."""

    def __init__(self):
        self.store, self.events, self.now, self.attempt = Store(), [], 0.0, 0
        self.recorder = goodput.GoodputRecorder("job", "log", True, self.store)

    def _clock(self):
        return START + datetime.timedelta(seconds=self.now)

    def _event(self, kind, **more):
        self.events.append({"attempt": self.attempt, "ts": START.timestamp() + self.now, "kind": kind, **more})

    def begin(self, init=20):
        self.attempt += 1
        self.recorder.record_job_start_time(self._clock())
        self._event("job_start")
        self.recorder.record_tpu_init_start_time(self._clock())
        self.now += init
        self.recorder.record_tpu_init_end_time(self._clock())
        self._event("init", dur_s=init)

    def steps(self, first, last, first_extra=0, wait_every=0, wait=0):
        for step in range(first, last + 1):
            self.recorder.record_step_start_time(step, self._clock())
            took = STEP_SECONDS + (first_extra if step == first else 0)
            self.now += took
            self._event("step", step=step, dur_s=took)
            if wait_every and step % wait_every == 0:
                self.recorder.record_custom_badput_event_start_time(self._clock(), "CHECKPOINT")
                self.now += wait
                self.recorder.record_custom_badput_event_end_time(self._clock(), "CHECKPOINT")
                self._event("ckpt_save", step=step, dur_s=wait)

    def silence(self, seconds):
        self.now += seconds

    def end(self):
        self.recorder.record_job_end_time(self._clock())
        self._event("job_end")

    def theirs(self, folder):
        calculator = goodput.GoodputCalculator("job", "log", self.store, cache_dir=str(folder))
        share, badput, _ = calculator.get_job_goodput(include_badput_breakdown=True)
        return share, {kind.name.lower(): value for kind, value in badput.items() if value}, calculator

    def ours(self, folder):
        log = folder / "events.jsonl"
        log.write_text("".join(json.dumps(event) + "\n" for event in self.events))
        ran = subprocess.run([PROGRAM, "measure", "--log", log, "--format", "json"], check=True, capture_output=True)
        return json.loads(ran.stdout)["runs"][0]


def plain():
    it = Training()
    it.begin()
    it.steps(1, STEPS)
    it.end()
    return it, 2000


def outage_in_one_process():
    it = Training()
    it.begin()
    it.steps(1, 100)
    it.silence(3600)
    it.steps(101, STEPS)
    it.end()
    return it, 2000


def restart_at_the_next_step():
    it = Training()
    it.begin()
    it.steps(1, 100)
    it.silence(3580)
    it.begin()
    it.steps(101, STEPS)
    it.end()
    return it, 2000


def restart_with_replayed_steps():
    it = Training()
    it.begin()
    it.steps(1, 100)
    it.silence(580)
    it.begin()
    it.steps(81, STEPS)
    it.end()
    return it, 2000


def checkpoints():
    it = Training()
    it.begin()
    it.steps(1, STEPS, wait_every=50, wait=30)
    it.end()
    return it, 2000


def slow_first_step():
    it = Training()
    it.begin()
    it.steps(1, STEPS, first_extra=90)
    it.end()
    return it, 2000


def main():
    if not PROGRAM.exists():
        sys.exit(f"{PROGRAM} is not there: cargo build --release")
    for case in [plain, outage_in_one_process, restart_at_the_next_step, restart_with_replayed_steps, checkpoints,
                 slow_first_step]:
        it, productive = case()
        with tempfile.TemporaryDirectory() as folder:
            share, badput, calculator = it.theirs(Path(folder))
            run = it.ours(Path(folder))
        time = run["time"]
        print(f"\n{case.__name__.replace('_', ' ')}: truly {100 * productive / it.now:.2f} % of {it.now:.0f} s")
        shown = {kind: value if isinstance(value, dict) else round(value, 2) for kind, value in badput.items()}
        print(f"  ml-goodput-measurement  {share:6.2f} %  {calculator._number_of_interruptions} disruptions  % {shown}")
        parts = {kind: round(100 * micros / time["wall_microseconds"], 2)
                 for kind, micros in time["badput_microseconds"].items()}
        parts["unattributed"] = round(100 * time["unattributed_microseconds"] / time["wall_microseconds"], 2)
        print(f"  goodput measure         {100 * time['productive_share']:6.2f} %  {run['disruptions']} disruptions  "
              f"% {parts}")


if __name__ == "__main__":
    main()
