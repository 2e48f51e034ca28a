// The columns of a table in CSV or TSV: their names, and which of them hold text.

const HEAD = 2 ** 16; // bytes that are read of a file
const NUM_FIRST = 20; // lines that are looked at
const DELIMITERS = [",", ";", "\t", "|"];
const SEVERAL_WORDS = /\p{L}['’\p{L}\p{M}]*[,.:;]?\s+\p{L}|[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]{2}/u;
const WORD = /^(?=.*\p{Ll})[\p{L}\p{M}\s'’-]{3,}$/u; // no number, no code such as EUR

export const isTable = (name) => /\.[ct]sv$/i.test(name);

/** The first lines of a table, as lists of cells; a quote may hold delimiters and line ends. */
function records(text, delimiter, isWhole) {
  const found = [];
  let values = [];
  const own = delimiter === "|" ? "\\|" : delimiter;
  const cell = new RegExp(`(?:"((?:[^"]|"")*)"|([^"\\r\\n${own}][^\\r\\n${own}]*|))(${own}|\\r\\n|\\r|\\n|$)`, "y");
  while (cell.lastIndex < text.length && found.length < NUM_FIRST) {
    const match = cell.exec(text);
    if (!match) break;
    const [, quoted, bare, end] = match;
    if (!end && !isWhole) break; // the rest of this cell was not read
    values.push(quoted === undefined ? bare : quoted.replaceAll('""', '"'));
    if (end === delimiter) continue;
    found.push(values);
    values = [];
  }
  return found.filter((each, line) => !line || each.join(""));
}

/** The likeliest table: its lines have equally many columns, and then the most. */
function likeliest(tables) {
  const rank = (table) => {
    const lengths = table.map((each) => each.length);
    return (new Set(lengths).size === 1 ? 1e6 : 0) + (lengths[0] ?? 0);
  };
  return tables.reduce((best, each) => (rank(each) > rank(best) ? each : best));
}

const share = (cells, pattern) => cells.filter((each) => pattern.test(each)).length / Math.max(1, cells.length);

/** The columns of a file: name, an example, what the server is to be sent, and whether they seem to hold text. */
export async function columnsOf(file) {
  const bytes = new Uint8Array(await file.slice(0, HEAD).arrayBuffer());
  const encoding = { "255,254": "utf-16le", "254,255": "utf-16be" }[bytes.slice(0, 2).join()] ?? "utf-8";
  const text = new TextDecoder(encoding).decode(bytes);
  const delimiters = /\.tsv$/i.test(file.name) ? ["\t"] : DELIMITERS;
  const [names = [], ...rows] = likeliest(delimiters.map((each) => records(text, each, file.size <= HEAD)));
  const trimmed = names.map((each) => each.trim());
  const columns = trimmed.map((name, at) => {
    const cells = rows.map((row) => (row[at] ?? "").trim()).filter(Boolean);
    const isNamed = name && trimmed.indexOf(name) === trimmed.lastIndexOf(name) && !/[\r\n]/.test(name);
    return {
      name: name || `Column ${at + 1}`,
      example: cells[0] ?? "",
      field: isNamed ? `"${name.replaceAll('"', '""')}"` : `${at + 1}`,
      cells,
    };
  });
  const hasText = columns.some(({ cells }) => share(cells, SEVERAL_WORDS) >= 0.5) ? SEVERAL_WORDS : WORD;
  return columns.map(({ cells, ...column }) => ({ ...column, isText: share(cells, hasText) >= 0.5 }));
}
