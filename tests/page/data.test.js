// Columns as the page reads them, packed here as in document.py: planes of bytes, zlib, base64.

import assert from "node:assert/strict";
import test from "node:test";
import { deflateSync } from "node:zlib";

import { Columns, rowsOf } from "../../dasfprof/report/page/data.js";

/** Returns the text of numbers with this many bytes: all lowest bytes, then all second ones. */
function packed(numbers, width) {
  const planes = Array.from({ length: width }, (_, plane) => numbers.map((one) => (one / 256 ** plane) & 0xff));
  return deflateSync(Buffer.from(planes.flat())).toString("base64");
}

/** Adds elements with these texts to the document, and returns its remaining elements. */
function pageOf(texts) {
  const left = new Map(Object.entries(texts));
  const getElementById = (id) => ({ textContent: left.get(id), remove: () => left.delete(id) });
  Object.assign(globalThis, { document: { getElementById } });
  return left;
}

test("a group has numbers in their units, and texts", async () => {
  const about = {
    "one/bytes": { type: "u1", count: 3 },
    "one/far": { type: "u4", count: 3, delta: true },
    "one/times": { type: "u4", count: 3, scale: 1e-6 },
    "one/shares": { type: "u2", count: 2, scale: 1 / 65535 },
    "one/sizes": { type: "u1", count: 3, values: [8, null] },
    "one/texts": { type: "text", count: 1 },
    "other/bytes": { type: "u1", count: 1 },
  };
  const left = pageOf({
    "column-one/bytes": packed([0, 7, 255], 1),
    "column-one/far": packed([70_000, 2 ** 32 - 1, 5], 4),
    "column-one/times": packed([3, 0xffffffff, 2_500_000], 4),
    "column-one/shares": packed([0, 65535], 2),
    "column-one/sizes": packed([0, 1, 0], 1),
    "column-one/texts": deflateSync('["ä"]').toString("base64"),
  });
  const { bytes, far, times, shares, sizes, texts } = await new Columns(about).group("one");
  assert.deepEqual([...bytes], [0, 7, 255]);
  assert.deepEqual([...far], [70_000, 69_999, 70_004]);
  assert.deepEqual([...times], [3e-6, NaN, 2.5]);
  assert.deepEqual([...shares], [0, 1]);
  assert.deepEqual([...sizes], [8, NaN, 8]);
  assert.deepEqual(texts, ["ä"]);
  assert.equal(left.size, 0);
});

test("a prefix stands before the group's name", async () => {
  const about = { "before-one/bytes": { type: "u1", count: 1 }, "after-one/bytes": { type: "u1", count: 1 } };
  pageOf({ "column-after-one/bytes": packed([9], 1) });
  const { bytes } = await new Columns(about, "after-").group("one");
  assert.deepEqual([...bytes], [9]);
});

test("a table is a list of rows", () => {
  const columns = [{ label: "A", values: [1, 2] }, { label: "B", values: ["x", null] }];
  assert.deepEqual(rowsOf({ columns }), [{ A: 1, B: "x" }, { A: 2, B: null }]);
  assert.deepEqual(rowsOf({ columns: [] }), []);
});
