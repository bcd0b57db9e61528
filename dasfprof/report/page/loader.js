// Inflates the script of the page, which is a third as large so, and runs it; the page's policy
// knows the hash of both.

"use strict";

function bytesOfBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let at = 0; at < bytes.length; at += 1) bytes[at] = characters.charCodeAt(at);
  return bytes;
}

async function inflate(bytes) {
  const { readable, writable } = new DecompressionStream("deflate");
  const writer = writable.getWriter();
  const inflated = new Response(readable).arrayBuffer();
  const [buffer] = await Promise.all([inflated, writer.write(bytes), writer.close()]);
  return new Uint8Array(buffer);
}

(async () => {
  try {
    const packed = document.getElementById("script");
    const script = document.createElement("script");
    script.textContent = new TextDecoder().decode(await inflate(bytesOfBase64(packed.textContent)));
    packed.replaceWith(script);
  } catch (error) {
    const failed = document.getElementById("failed");
    failed.textContent = `This browser could not read the page: ${error}`;
    failed.hidden = false;
    throw error;
  }
})();
