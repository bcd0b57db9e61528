// Positions of task runs in the timeline, compared with searches through all of them.

import assert from "node:assert/strict";
import test from "node:test";

import { Frame } from "../../dasfprof/report/page/timeline/frame.js";
import { cover } from "../../dasfprof/report/page/timeline/gaps.js";
import { compactView, flattenView, packed, seenIn, tracksOfRows } from "../../dasfprof/report/page/timeline/views.js";
import { drawn } from "./random.js";
import { tasksOf } from "./tasks.js";

/** Returns consecutive task runs on some tracks. */
function randomTasks(tracks, count) {
  const numbers = drawn(2 * tracks * count);
  const runs = [];
  for (let track = 0; track < tracks; track += 1) {
    let start = 0;
    for (let at = 0; at < count; at += 1) {
      const [gap, duration] = numbers.splice(0, 2);
      runs.push([track, start + gap, duration]);
      start += gap + duration;
    }
  }
  return tasksOf(runs);
}

test("what is seen between two times has all that overlaps them", () => {
  const tasks = randomTasks(3, 40);
  const view = flattenView(tasks);
  for (const [from, to] of [[0, 100], [5, 5.01], [12, 20], [90, 91]]) {
    for (let track = 0; track < 3; track += 1) {
      const [begin, end] = seenIn(view, tasks, track, from, to);
      for (let row = 0; row < tasks.count; row += 1) {
        const overlaps = tasks.starts[row] < to && tasks.starts[row] + tasks.durations[row] > from;
        if (overlaps && tasks.trackOfRow[row] === track) assert.ok(row >= begin && row < end);
      }
    }
  }
});

test("a view of long task runs has these alone, on their tracks", () => {
  const tasks = randomTasks(3, 40);
  const view = compactView(tasks, 0.5);
  const long = [...tasks.durations.keys()].filter((row) => tasks.durations[row] >= 0.5);
  assert.deepEqual([...view.rows], long);
  const tracks = tracksOfRows(view, tasks.count);
  for (let row = 0; row < tasks.count; row += 1)
    assert.equal(tracks[row], long.includes(row) ? tasks.trackOfRow[row] : -1);
});

test("runs at a time are spread over as many tracks, and no more", () => {
  const tasks = tasksOf([[0, 0, 4], [0, 1, 1], [0, 2, 1], [0, 3, 5], [0, 4, 1]]);
  assert.deepEqual(packed(tasks, [0, 1, 2, 3, 4]), [[0, 4], [1, 2, 3]]);
});

test("the first track may stay while the others scroll", () => {
  const place = { left: 100, top: 10, width: 500, height: 100, from: 2, to: 12 };
  const frame = new Frame({ ...place, trackHeight: 20, scroll: 30, pinned: 30 });
  assert.equal(frame.x(7), 350);
  assert.equal(frame.time(350), 7);
  assert.deepEqual([0, 0.5, 1, 3].map((track) => frame.y(track)), [10, 25, 10, 50]);
  assert.deepEqual([5, 12, 39, 45, 65].map((y) => frame.track(y)), [-1, 0, 0, 2, 3]);
  assert.deepEqual(frame.seen(9), [0, 2, 3, 4, 5, 6].filter((track) => track < 9 && track <= frame.track(109)));
});

test("pixels are covered by as much as lies in them", () => {
  const pixels = new Float64Array(4);
  cover(pixels, 0.5, 2.25, 2);
  cover(pixels, -3, 0.25);
  cover(pixels, 3.5, 9);
  assert.deepEqual([...pixels], [1.25, 2, 0.5, 0.5]);
});
