// The columns of the page: shuffled bytes, zlib, base64, as document.py writes them. Each is in an element that is
// removed when it is read.

import { byId } from "./dom.js";
import { bytesOfBase64, inflate } from "./inflate.js";

const MISSING = 0xffffffff;
const NUMBERS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array };

export class Columns {
  about; prefix;

  /** `about` has the encoding of each column by name. `prefix` is a prefix of the names of groups. */
  constructor(about, prefix = "") {
    Object.assign(this, { about, prefix });
  }

  /** Returns the columns of a group by name: numbers, with NaN if unknown, or texts. */
  async group(name) {
    const begin = `${this.prefix}${name}/`;
    const columns = {};
    for (const [column, about] of Object.entries(this.about)) {
      if (!column.startsWith(begin)) continue;
      const element = byId(`column-${column}`);
      const bytes = await inflate(bytesOfBase64(element.textContent));
      element.remove();
      columns[column.slice(begin.length)] = decoded(bytes, about);
    }
    return columns;
  }
}

function decoded(bytes, about) {
  if (about.type === "text") return JSON.parse(new TextDecoder().decode(bytes));
  if (about.type === "f8") return new Float64Array(bytes.buffer);
  const numbers = unshuffled(bytes, about);
  if (about.delta) for (let at = 1; at < numbers.length; at += 1) numbers[at] += numbers[at - 1];
  if (about.values) return valuesAt(numbers, about.values);
  return about.scale ? scaled(numbers, about.scale) : numbers;
}

/** Returns numbers from all their lowest bytes, then all their second bytes, and so on. */
function unshuffled(bytes, { type, count }) {
  const width = bytes.length / count;
  const inOrder = new Uint8Array(bytes.length);
  for (let plane = 0; plane < width; plane += 1)
    for (let at = 0; at < count; at += 1) inOrder[at * width + plane] = bytes[plane * count + at];
  return new NUMBERS[type](inOrder.buffer);
}

/** Returns the values at indices, NaN for null. */
function valuesAt(places, values) {
  const known = Float64Array.from(values, (value) => value ?? NaN);
  const amounts = new Float64Array(places.length);
  for (let at = 0; at < places.length; at += 1) amounts[at] = known[places[at]];
  return amounts;
}

/** Returns numbers times a scale. A division by a million is exact, unlike a product with a millionth. */
function scaled(numbers, scale) {
  const [times, parts] = scale === 1e-6 ? [1, 1e6] : [scale, 1];
  const amounts = new Float64Array(numbers.length);
  for (let at = 0; at < numbers.length; at += 1)
    amounts[at] = numbers[at] === MISSING ? NaN : (numbers[at] * times) / parts;
  return amounts;
}

/** @returns {any[]} The rows of a table, by label. */
export function rowsOf({ columns }) {
  const count = columns[0]?.values.length ?? 0;
  return Array.from({ length: count }, (_, at) =>
    Object.fromEntries(columns.map(({ label, values }) => [label, values[at]])),
  );
}
