// The columns of the page: base64 of zlib of shuffled bytes, each in an element of its own, which
// is removed once it is read. packing.py is the other half.

import { bytesOfBase64, inflate } from "./inflate.js";

const MISSING = 0xffffffff;

export class Columns {
  /** Of a page, this one or another; `prefix`: of the names of the columns to read. */
  constructor(about, { from = document, prefix = "" } = {}) {
    this.about = Object.fromEntries(
      Object.entries(about)
        .filter(([name]) => name.startsWith(prefix))
        .map(([name, facts]) => [name.slice(prefix.length), facts]),
    );
    this.find = (name) => from.getElementById(`column-${prefix}${name}`);
  }

  has(name) {
    return Object.hasOwn(this.about, name);
  }

  /** Whole numbers as they are stored, or the list of texts. */
  async read(name) {
    const about = this.about[name];
    const element = this.find(name);
    const bytes = await inflate(bytesOfBase64(element.textContent));
    element.remove();
    if (about.type === "text") return JSON.parse(new TextDecoder().decode(bytes));
    if (about.type === "f8") return new Float64Array(bytes.buffer);
    const numbers = unshuffled(bytes, about);
    if (about.delta) {
      for (let at = 1; at < numbers.length; at += 1) numbers[at] += numbers[at - 1];
    }
    return numbers;
  }

  /** Numbers in the unit of the column; NaN where they are unknown. */
  async amounts(name) {
    const { scale, values } = this.about[name];
    const stored = await this.read(name);
    if (stored instanceof Float64Array) return stored;
    const amounts = new Float64Array(stored.length);
    if (values) {
      const known = Float64Array.from(values, (value) => value ?? NaN);
      for (let at = 0; at < stored.length; at += 1) amounts[at] = known[stored[at]];
      return amounts;
    }
    // Rounded to what was stored: 3 steps of a millionth are 3e-6, not 2.9999999999999997e-6.
    const [times, parts] = scale === 1e-6 ? [1, 1e6] : [scale, 1];
    for (let at = 0; at < stored.length; at += 1) {
      amounts[at] = stored[at] === MISSING ? NaN : (stored[at] * times) / parts;
    }
    return amounts;
  }
}

function unshuffled(bytes, { type, count }) {
  if (type === "u1") return bytes;
  if (type === "u2") {
    const numbers = new Uint16Array(count);
    for (let at = 0; at < count; at += 1) numbers[at] = bytes[at] | (bytes[at + count] << 8);
    return numbers;
  }
  const numbers = new Uint32Array(count);
  const [second, third, fourth] = [count, 2 * count, 3 * count];
  for (let at = 0; at < count; at += 1) {
    numbers[at] =
      bytes[at] |
      (bytes[at + second] << 8) |
      (bytes[at + third] << 16) |
      (bytes[at + fourth] << 24);
  }
  return numbers;
}

/** A table of the page as a list of maps. */
export function rowsOf({ columns }) {
  const count = columns[0]?.values.length ?? 0;
  return Array.from({ length: count }, (_, at) =>
    Object.fromEntries(columns.map(({ label, values }) => [label, values[at]])),
  );
}
