// The progress of a run, against counts at single times.

import assert from "node:assert/strict";
import test from "node:test";

import { progressOf } from "../../dasfprof/report/page/pictures/progress.js";
import { tasksOf } from "./tasks.js";

test("at each time task runs wait, run, are done or failed", () => {
  const runs = [[0, 1, 2], [0, 4, 3], [1, 2, 8]];
  const tasks = tasksOf(runs, 2);
  // The second was known for three seconds before it began; the third fails.
  Object.assign(tasks, {
    failed: Uint8Array.from([0, 0, 1]),
    openStates: [false],
    statuses: [{ name: "Inqueue", seconds: Float64Array.from([0, 3, NaN]) }],
  });
  const progress = progressOf(tasks, 10);
  for (let time = 0; time <= 10; time += 1) {
    const known = [1, 1, 2];
    const is = (test_) => runs.filter((run, at) => test_(run, at)).length;
    const ended = ([, start, seconds]) => start + seconds <= time;
    assert.equal(progress.done[time], is((run, at) => ended(run) && at !== 2));
    assert.equal(progress.failed[time], is((run, at) => ended(run) && at === 2));
    assert.equal(progress.running[time], is((run) => run[1] <= time && !ended(run)));
    assert.equal(progress.waiting[time], is((run, at) => known[at] <= time && run[1] > time));
  }
});
