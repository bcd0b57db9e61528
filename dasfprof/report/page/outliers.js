// Which of many are told first where only some fit.

/** Items by how far their measure is from the median, the furthest first. */
function outliersFirst(items, measure) {
  const measures = items.map(measure);
  const middle = median(measures);
  const away = (at) => Math.abs(measures[at] - middle);
  const order = [...items.keys()].sort((one, other) => away(other) - away(one) || one - other);
  return order.map((at) => items[at]);
}

/** All items, as they are, or so many outliers. */
function fitting(items, measure, most) {
  return items.length > most ? outliersFirst(items, measure).slice(0, most) : items;
}

function median(numbers) {
  const sorted = Float64Array.from(numbers).sort();
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
