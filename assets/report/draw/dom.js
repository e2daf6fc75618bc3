/* SPDX-License-Identifier: Apache-2.0 */
/* Building elements. Everything that comes from data goes in as a text node or as an attribute value,
 * never as markup, because names, tokens and samples are whatever a model or a stranger's recipe says. */

/* el("p", {class: "note", onclick: f}, "text", otherElement, null): null and false children are left
 * out. */
function el(tag, props, ...children) {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(props || {})) {
        if (value === null || value === undefined || value === false) continue;
        if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
        else node.setAttribute(key, value === true ? "" : String(value));
    }
    append(node, children);
    return node;
}

function append(node, children) {
    for (const child of children.flat(Infinity)) {
        if (child === null || child === undefined || child === false) continue;
        node.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
    return node;
}

/* Text for a canvas or a chip: characters that would break the line or turn the writing direction become
 * a mark, and what is longer than `limit` characters is cut. */
function plain(text, limit) {
    const safe = Array.from(
        String(text).replace(
            /[\u0000-\u001f\u007f-\u009f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu,
            "\ufffd",
        ),
    );
    return limit && safe.length > limit ? safe.slice(0, limit - 1).join("") + "…" : safe.join("");
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/* A token as people write it on an axis: its leading space as a dot, a newline as an arrow. */
function tokenText(token, limit) {
    return plain(
        String(token)
            .replace(/\r?\n/g, "↵")
            .replace(/\t/g, "⇥")
            .replace(/^ +| +$/g, (s) => "·".repeat(s.length)),
        limit,
    );
}

/* A canvas label cut to a width in pixels. */
function fitText(ctx, text, width) {
    if (ctx.measureText(text).width <= width) return text;
    const letters = Array.from(text);
    let low = 0;
    let high = letters.length;
    while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (ctx.measureText(letters.slice(0, middle).join("") + "…").width <= width) low = middle;
        else high = middle - 1;
    }
    return low ? letters.slice(0, low).join("") + "…" : "";
}

/* A file name out of any text. */
function fileName(text, extension) {
    return (
        (
            String(text)
                .toLowerCase()
                .replace(/[^a-z0-9]+/g, "-")
                .replace(/^-+|-+$/g, "") || "figure"
        ).slice(0, 60) +
        "." +
        extension
    );
}

function csvCell(value) {
    const text = value === null || value === undefined ? "" : String(value);
    /* A cell that begins like a formula is data here; spreadsheets run it unless something stands in
     * front. */
    const quiet = typeof value !== "number" && /^[=+\-@\t\r]/.test(text) ? "'" + text : text;
    return /[",\r\n]/.test(quiet) ? '"' + quiet.replace(/"/g, '""') + '"' : quiet;
}

/* A data: link to a table given as rows of values, the heading first. */
function csvLink(rows, name, label) {
    const text = rows.map((row) => row.map(csvCell).join(",")).join("\r\n") + "\r\n";
    return el(
        "a",
        {
            class: "tool",
            download: fileName(name, "csv"),
            href:
                "data:text/csv;charset=utf-8," +
                encodeURIComponent(text.toWellFormed ? text.toWellFormed() : text),
        },
        label || "CSV",
    );
}

function clamp(x, low, high) {
    return Math.min(high, Math.max(low, x));
}
