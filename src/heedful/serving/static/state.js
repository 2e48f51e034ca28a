// The state of the page in the fragment of its address, which browsers never send to a server.

export function readState() {
  const fields = new URLSearchParams(location.hash.slice(1));
  return { text: fields.get("text") ?? "", from: fields.get("from") ?? "", to: fields.get("to") ?? "" };
}

export function writeState({ text, from, to }) {
  const fields = new URLSearchParams({ from, to, text });
  const fragment = text ? `#${fields}` : "";
  history.replaceState(null, "", location.pathname + location.search + fragment);
}
