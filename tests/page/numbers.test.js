// Orders and positions of numbers, compared with plain sorts and searches.

import assert from "node:assert/strict";
import test from "node:test";

import { ascending, fitting, lastAtMost, median, outliersFirst, overlap } from "../../dasfprof/report/page/numbers.js";
import { drawn } from "./random.js";

test("the last place that holds no more than a number", () => {
  const numbers = [1, 3, 3, 7];
  assert.deepEqual([0, 1, 2, 3, 6, 7, 9].map((most) => lastAtMost(numbers, most)), [-1, 0, 0, 2, 2, 3, 3]);
  assert.equal(lastAtMost(numbers, 9, 1, 3), 2);
  assert.equal(lastAtMost([], 1), -1);
});

test("places in ascending order are those of a sort", () => {
  for (const count of [0, 1, 2, 1000]) {
    const numbers = Float64Array.from(drawn(count), (number) => Math.floor(number * 300) / 7);
    const sorted = [...numbers.keys()].sort((one, other) => numbers[one] - numbers[other] || one - other);
    assert.deepEqual([...ascending(numbers)], sorted);
  }
  assert.deepEqual([...ascending(new Float64Array(3))], [0, 1, 2]);
});

test("how much of a time lies in another one", () => {
  assert.equal(overlap(1, 4, 2, 9), 2);
  assert.equal(overlap(1, 4, 4, 9), 0);
  assert.equal(overlap(1, 4, 5, 9), 0);
});

test("the median, and what is furthest from it", () => {
  assert.equal(median([5, 1, 9]), 5);
  assert.equal(median([4, 1, 9, 2]), 3);
  const items = ["a", "bbbb", "cc", "ddd", "eeeeeeee"];
  const length = (item) => item.length;
  assert.deepEqual(outliersFirst(items, length), ["eeeeeeee", "a", "bbbb", "cc", "ddd"]);
  assert.deepEqual(fitting(items, length, 2), ["eeeeeeee", "a"]);
  assert.deepEqual(fitting(items, length, 5), items);
});
