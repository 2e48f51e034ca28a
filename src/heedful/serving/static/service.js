// The requests of the page, and refusals as errors that carry the server's own words.

export class Refusal extends Error {
  constructor(message, { status = 0, retryAfter = 0 } = {}) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

let apiKey = "";
export const setKey = (key) => { apiKey = key.trim(); };

export const languages = () => answered("languages", {});
export const settings = () => answered("frontend/settings", {});
export const translate = (fields, signal) => posted("translate", fields, signal);
export const glossaries = () => answered("v3/glossaries", { headers: authorization() });
export const suggest = (fields) => posted("suggest", fields);
export const confirmed = (id) => posted(`suggest/${id}`, {});
export const undo = (id) => answered(`suggest/${id}`, { method: "DELETE", headers: authorization() });
export const explain = (fields, signal) => posted("explain", fields, signal);

const authorization = () => (apiKey ? { Authorization: `DeepL-Auth-Key ${apiKey}` } : {});

/** Send a document; it is asked for with what this returns. */
export const sendDocument = (file, fields, signal) => {
  const body = new FormData();
  for (const [name, value] of Object.entries(fields)) if (value) body.append(name, value);
  body.append("file", file);
  return answered("v2/document", { method: "POST", headers: authorization(), body, signal });
};
export const documentStatus = (handle, signal) => answered(...aboutDocument(handle, "", signal));
export const documentResult = (handle, signal) =>
  answered(...aboutDocument(handle, "/result", signal), (response) => response.blob());

function aboutDocument({ document_id, document_key }, path, signal) {
  const headers = { ...authorization(), "Content-Type": "application/json" };
  return [`v2/document/${document_id}${path}`, { method: "POST", headers, body: JSON.stringify({ document_key }), signal }];
}

function posted(path, fields, signal) {
  const body = JSON.stringify(apiKey ? { ...fields, api_key: apiKey } : fields);
  return answered(path, { method: "POST", headers: { "Content-Type": "application/json" }, body, signal });
}

/** Ask, and once more where the connection broke: a request that comes twice does what one does. */
async function fetched(path, init) {
  try {
    return await fetch(path, init);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    await new Promise((done) => { setTimeout(done, 300); });
    return fetch(path, init);
  }
}

async function answered(path, init, read = (from) => from.json()) {
  let response;
  try {
    response = await fetched(path, init);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal("The server does not answer. Is it still running?");
  }
  const content = await (response.ok ? read(response) : response.json()).catch((error) => {
    if (error.name === "AbortError") throw error;
    return {};
  });
  if (response.ok) return content;
  throw new Refusal(content.error || content.message || `The server answered ${response.status}.`, {
    status: response.status,
    retryAfter: Number(response.headers.get("Retry-After")) || 0,
  });
}
