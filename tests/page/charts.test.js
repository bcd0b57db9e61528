// Data for charts and tables: bins, trees, axes, decimals.

import assert from "node:assert/strict";
import test from "node:test";

import { treeOf } from "../../dasfprof/report/page/flame/graph.js";
import { spentWords } from "../../dasfprof/report/page/flame/sources.js";
import { histogram } from "../../dasfprof/report/page/functions/histogram.js";
import { axisValues, linesOfTitle } from "../../dasfprof/report/page/resources/resources.js";
import { cellText, decimalsOf } from "../../dasfprof/report/page/tables/columns.js";
import { drawn } from "./random.js";

test("a title of a chart ends before the numbers of its axis", () => {
  assert.deepEqual(linesOfTitle("Memory of the scheduler and the client"),
    ["Memory of the", "scheduler and the", "client"]);
  assert.deepEqual(linesOfTitle("Memory of workers"), ["Memory of workers"]);
  assert.deepEqual(linesOfTitle("x".repeat(30)), ["x".repeat(30)]);
});

test("each number is in the bin between whose edges it lies", () => {
  for (const spread of [1, 1e4]) {
    const numbers = Float64Array.from(drawn(500), (number) => 0.01 * spread ** number + number / 100).sort();
    const { edges, counts } = histogram(numbers);
    assert.equal(counts.reduce((sum, count) => sum + count), 500);
    for (const [at, count] of counts.entries()) {
      const isLast = at === counts.length - 1;
      const inside = numbers.filter((one) => one >= edges[at] && (one < edges[at + 1] || isLast));
      assert.equal(inside.length, count);
    }
  }
  assert.deepEqual(histogram([2, 2, 2]), { edges: [2, 2], counts: [3] });
});

test("calls by their depths are a tree", () => {
  const calls = treeOf([0, 1, 2, 1, 0]);
  assert.deepEqual(calls.map(({ caller }) => caller?.at ?? null), [null, 0, 1, 0, null]);
  assert.deepEqual(calls[0].calls.map(({ at }) => at), [1, 3]);
});

test("what seconds were spent with is told as far as it is known", () => {
  const spent = { seconds: 4, computing: 2, core: 1, lock: 0, uncertain: 0 };
  assert.equal(spentWords({ ...spent, computing: NaN }), "computing or waiting: unknown");
  assert.equal(spentWords(spent), "50 % computing, 25 % waiting for CPU, 25 % waiting");
  assert.equal(spentWords({ ...spent, uncertain: 1 }), "75 % computing or waiting for CPU, 25 % waiting");
});

test("an axis has up to three round values", () => {
  assert.deepEqual(axisValues(100, "%"), [50, 100]);
  assert.deepEqual(axisValues(0.7, "%").length <= 3, true);
  assert.deepEqual(axisValues(2, ""), [1, 2]);
  assert.deepEqual(axisValues(0, "B"), []);
});

test("numbers of a column have three digits, and no more decimals than its median", () => {
  assert.equal(decimalsOf([1, 2, null]), 0);
  assert.equal(decimalsOf([0.5, 123.25, 2.5]), 2);
  assert.equal(decimalsOf([0.0321, 0.0456, 0, NaN]), 4);
  assert.equal(decimalsOf(Float64Array.from({ length: 5000 }, () => 0.25)), 3);
  const shown = [[0.0001, "< 0.01"], [null, "NA"], [0, "0"], [1.5, "1.50"], [12.345, "12.3"], [1234.5, "1,235"]];
  for (const [value, text] of shown) assert.equal(cellText(value, 2), text);
});
