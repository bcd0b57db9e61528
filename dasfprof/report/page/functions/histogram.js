// How many task runs took how long.

import { make } from "../dom.js";
import { counted, formatSeconds } from "../format.js";
import { lastAtMost } from "../numbers.js";

const BINS = 30;
/** From this ratio of the longest to the shortest on, the bins grow as the times do. */
const WIDE = 30;

/** Counts of numbers in bins: `edges`, one more than `counts`. */
export function histogram(sorted) {
  const [least, most] = [sorted[0], sorted.at(-1)];
  if (least === most) return { edges: [least, most], counts: [sorted.length] };
  const logarithmic = least > 0 && most / least > WIDE;
  const edges = Array.from({ length: BINS + 1 }, (_, at) =>
    logarithmic ? least * (most / least) ** (at / BINS) : least + ((most - least) * at) / BINS,
  );
  edges[BINS] = most;
  const counts = new Array(BINS).fill(0);
  for (const number of sorted) {
    // The last edge belongs to the last bin.
    counts[Math.min(Math.max(lastAtMost(edges, number), 0), BINS - 1)] += 1;
  }
  return { edges, counts };
}

/** A picture of the histogram of seconds, with the median marked. */
export function histogramChart(sorted) {
  const { edges, counts } = histogram(sorted);
  const most = Math.max(...counts);
  const bars = counts.map((count, at) => {
    const bar = make("i", {
      title: `${formatSeconds(edges[at])} to ${formatSeconds(edges[at + 1])}: ${counted(count, "task run")}`,
    });
    bar.style.height = `${count ? Math.max((count / most) * 100, 2) : 0}%`;
    return bar;
  });
  const [least, longest] = [sorted[0], sorted.at(-1)].map(formatSeconds);
  const label = `Durations from ${least} to ${longest}, most often ${mostOften(edges, counts)}`;
  const scale = [edges[0], edges[edges.length >> 1], edges.at(-1)];
  return make(
    "figure",
    { class: "histogram" },
    make("div", { role: "img", "aria-label": label }, ...bars),
    make("figcaption", {}, ...scale.map((edge) => make("span", {}, formatSeconds(edge)))),
  );
}

function mostOften(edges, counts) {
  const at = counts.indexOf(Math.max(...counts));
  return `${formatSeconds(edges[at])} to ${formatSeconds(edges[at + 1])}`;
}
