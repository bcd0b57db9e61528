// Decompression of text from document.py.

export function bytesOfBase64(text) {
  if ("fromBase64" in Uint8Array) return /** @type {any} */ (Uint8Array).fromBase64(text);
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let at = 0; at < bytes.length; at += 1) bytes[at] = characters.charCodeAt(at);
  return bytes;
}

export async function inflate(bytes) {
  const { readable, writable } = new DecompressionStream("deflate");
  const writer = writable.getWriter();
  const inflated = new Response(readable).arrayBuffer();
  const [buffer] = await Promise.all([inflated, writer.write(bytes), writer.close()]);
  return new Uint8Array(buffer);
}
