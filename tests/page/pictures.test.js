// The progress of a run, against counts at single times.

import assert from "node:assert/strict";
import test from "node:test";

import { leftInWords, progressOf } from "../../dasfprof/report/page/pictures/progress.js";
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

test("when a run ends is only said where something tells", () => {
  assert.equal(leftInWords(null, 0), "");
  assert.match(leftInWords(null, 3), /^3 tasks had not ended\. Those/);
  const words = (seconds, unknown = 0) => leftInWords({ tasks: 12, seconds, unknown }, 12);
  assert.match(words(30), /^It goes on: 12 tasks had not ended, at the pace of the last 30 s until about 30 s from/);
  assert.match(words(null), /had not ended; when they end, nothing tells\./);
  assert.match(words(30, 2), /no sooner than about 30 s from then: of 2 tasks no other of the function has ended/);
});
