// Numbers and texts as people read them.

import assert from "node:assert/strict";
import test from "node:test";

import * as format from "../../dasfprof/report/page/format.js";
import { clockText, endText, ticks } from "../../dasfprof/report/page/timeline/marks.js";

test("seconds have three digits and the unit that fits", () => {
  const short = [[0, "0 s"], [2.5e-7, "0.25 µs"], [0.0123456, "12.3 ms"], [1.5, "1.5 s"]];
  for (const [seconds, text] of [...short, [119.4, "119 s"], [125, "2 min 5 s"]])
    assert.equal(format.formatSeconds(seconds), text);
  assert.equal(format.formatSeconds(7322), "2 h 2 min");
  assert.equal(format.formatSeconds(-0.5), "−500 ms");
  assert.equal(format.formatSeconds(NaN), "unknown");
});

test("bytes, counts and shares", () => {
  assert.equal(format.formatBytes(999), "999 B");
  assert.equal(format.formatBytes(999_600), "1 MB");
  assert.equal(format.formatUnit(1500, "B/s"), "1.5 kB/s");
  assert.equal(format.formatUnit(12.345, "%"), "12.3 %");
  assert.equal(format.formatCount(1234567), "1,234,567");
  assert.equal(format.formatShare(0.0004), "under 0.1 %");
  assert.equal(format.formatShare(0.256), "25.6 %");
  assert.equal(format.counted(1, "task run"), "1 task run");
  assert.equal(format.counted(1200, "task run"), "1,200 task runs");
});

test("what is not seen as itself is written out", () => {
  assert.equal(format.visible("a\u0007b"), "a\\x07b");
  assert.equal(format.visible("\u202egnp.exe"), "\\u202egnp.exe");
  assert.equal(format.visible("half \ud800 pair"), "half \\ud800 pair");
  assert.equal(format.visible("schön 𝄞"), "schön 𝄞");
});

test("both ends of a long text stay", () => {
  assert.equal(format.shortened("short", 10), "short");
  const text = format.shortened("('load-0123456789', 3, 14)", 15);
  assert.equal(text.length, 15);
  assert.ok(text.startsWith("('load-") && text.endsWith(", 14)"), text);
});

test("no cell of a CSV file is a formula or breaks its line", () => {
  const texts = [["=1+1", "'=1+1"], [" -2", "' -2"], ["a,b", '"a,b"'], ['say "so"', '"say ""so"""']];
  for (const [value, cell] of [...texts, [null, ""], [NaN, ""], [-2.5, "-2.5"]])
    assert.equal(format.csvCell(value), cell);
  assert.equal(format.csvCell("\ud800\0"), "\\ud800\\x00");
});

test("the ruler has round times, as exact as they are apart", () => {
  assert.deepEqual(ticks(0, 10, 1000, 90), { step: 1, times: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10] });
  assert.equal(ticks(0, 7200, 1000, 90).step, 1800);
  assert.equal(clockText(0.25, 0.05), "0.25 s");
  assert.equal(clockText(125, 60), "2 min");
  assert.equal(clockText(5400, 3600), "1:30 h");
  assert.equal(endText(1.2999, 0.1), "1.2 s");
});
