// The histogram of the durations of task runs.

import { make } from "../dom.js";
import { counted, formatSeconds } from "../format.js";
import { lastAtMost } from "../numbers.js";

const BINS = 30;
/** Threshold: bins are logarithmic if the longest time is more than this multiple of the shortest. */
const WIDE = 30;

/** Returns the counts of sorted numbers in bins, and the edges of the bins. */
export function histogram(sorted) {
  const [shortest, longest] = [sorted[0], sorted.at(-1)];
  if (shortest === longest) return { edges: [shortest, longest], counts: [sorted.length] };
  const logarithmic = shortest > 0 && longest / shortest > WIDE;
  const edges = Array.from({ length: BINS + 1 }, (_, at) =>
    logarithmic ? shortest * (longest / shortest) ** (at / BINS) : shortest + ((longest - shortest) * at) / BINS,
  );
  edges[BINS] = longest;
  const counts = new Array(BINS).fill(0);
  for (const number of sorted) {
    // The longest time is in the last bin.
    counts[Math.min(Math.max(lastAtMost(edges, number), 0), BINS - 1)] += 1;
  }
  return { edges, counts };
}

/** Creates a histogram of sorted seconds. */
export function histogramChart(sorted) {
  const { edges, counts } = histogram(sorted);
  const highest = Math.max(...counts);
  const range = (at) => `${formatSeconds(edges[at])} to ${formatSeconds(edges[at + 1])}`;
  const bars = counts.map((count, at) => {
    const bar = make("i", { title: `${range(at)}: ${counted(count, "task run")}` });
    bar.style.height = `${count ? Math.max((count / highest) * 100, 2) : 0}%`;
    return bar;
  });
  const [shortest, longest] = [sorted[0], sorted.at(-1)].map(formatSeconds);
  const label = `Durations from ${shortest} to ${longest}, most often ${range(counts.indexOf(highest))}`;
  const scale = [edges[0], edges[edges.length >> 1], edges.at(-1)];
  return make(
    "figure",
    { class: "histogram" },
    make("div", { role: "img", "aria-label": label }, ...bars),
    make("figcaption", {}, ...scale.map((edge) => make("span", {}, formatSeconds(edge)))),
  );
}
