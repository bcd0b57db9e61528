// The search, compared with the texts of all keys.

import assert from "node:assert/strict";
import test from "node:test";

import { asShown, findRows } from "../../dasfprof/report/page/timeline/search.js";
import { tasksWithKeys } from "./tasks.js";

const KEYS = [
  ...["('Load-ab', 0, 0)", "('Load-ab', 0, 1)", "('Load-ab', 12, 7)", "sum-345"],
  ...["mean-deadbeef000000010000000000000000", "mean-00c0ffee000000020000000000000000", "whole key"],
];

test("keys are written as Dask has them", () => {
  const tasks = tasksWithKeys();
  assert.deepEqual(KEYS.map((_, key) => tasks.keyText(key)), KEYS);
});

test("what is found are the keys whose texts hold the query", async () => {
  const tasks = tasksWithKeys();
  const queries = ["LOAD-AB', 0", ", 0, 1)", "345", "sum-34", "-deadBEEF", "ffee0000", "key", "b', 12, 7)"];
  for (const query of [...queries, "absent"]) {
    const found = await findRows(tasks, query, () => false);
    const wanted = KEYS.map((key) => Number(key.toLowerCase().includes(query.toLowerCase())));
    assert.deepEqual([...found], wanted, query);
  }
});

test("errors and lines are found, names not by digits alone", async () => {
  const tasks = tasksWithKeys();
  assert.deepEqual([...(await findRows(tasks, "valueerror", () => false))], [1, 0, 0, 0, 0, 0, 0]);
  assert.equal((await findRows(tasks, "worker-0", () => false)).indexOf(0), -1);
  assert.deepEqual([...(await findRows(tasks, "0", () => false))], [1, 1, 0, 0, 1, 1, 0]);
});

test("of a crowded page the first half of a hash is told", () => {
  const tasks = { facts: { crowded: true } };
  assert.equal(asShown(tasks, "mean-0123456789abcdef0123456789abcdef"), "mean-0123456789abcdef…");
  assert.equal(asShown(tasks, "f-01234567-89ab-cdef-0123-456789abcdef"), "f-01234567-89ab-cdef…");
  assert.equal(asShown({ facts: { crowded: false } }, "as it is"), "as it is");
});
