// Sums, orders and places of numbers.

export function sumOf(numbers) {
  return numbers.reduce((sum, number) => sum + number, 0);
}

/** The last place of ascending numbers that holds no more than a number; -1 if none does. */
export function lastAtMost(numbers, most, low = 0, high = numbers.length) {
  let [first, end] = [low, high];
  while (first < end) {
    const middle = (first + end) >> 1;
    if (numbers[middle] <= most) first = middle + 1;
    else end = middle;
  }
  return first - 1;
}

/** The places of numbers, none negative or NaN, in ascending order of the numbers. */
export function ascending(numbers) {
  const count = numbers.length;
  let highest = 0;
  for (let at = 0; at < count; at += 1) highest = Math.max(highest, numbers[at]);
  const scale = highest > 0 ? (2 ** 32 - 1) / highest : 0;
  const keys = new Uint32Array(count);
  for (let at = 0; at < count; at += 1) keys[at] = numbers[at] * scale;
  // Sorted by their lowest bits first, which takes a quarter of the time of a native sort.
  let [order, next] = [Uint32Array.from({ length: count }, (_, at) => at), new Uint32Array(count)];
  for (const shift of [0, 11, 22]) {
    const free = new Uint32Array(2 ** 11 + 1);
    for (let at = 0; at < count; at += 1) free[((keys[at] >>> shift) & 0x7ff) + 1] += 1;
    for (let bin = 1; bin < free.length; bin += 1) free[bin] += free[bin - 1];
    for (let at = 0; at < count; at += 1) {
      const place = order[at];
      next[free[(keys[place] >>> shift) & 0x7ff]++] = place;
    }
    [order, next] = [next, order];
  }
  return order;
}

/** For how long one time lies in another one. */
export function overlap(begin, end, from, to) {
  return Math.max(0, Math.min(end, to) - Math.max(begin, from));
}

/** Items by how far their measure is from the median, the furthest first. */
export function outliersFirst(items, measure) {
  const measures = items.map(measure);
  const middle = median(measures);
  const away = (at) => Math.abs(measures[at] - middle);
  const order = [...items.keys()].sort((one, other) => away(other) - away(one) || one - other);
  return order.map((at) => items[at]);
}

/** All items, as they are, or so many outliers. */
export function fitting(items, measure, most) {
  return items.length > most ? outliersFirst(items, measure).slice(0, most) : items;
}

export function median(numbers) {
  const sorted = Float64Array.from(numbers).sort();
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
