/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of numbers: a heading with unit and definition per column, the best value of a column marked,
 * rows that open into more rows, and the whole as CSV with full precision. */

/* spec: {id, caption, columns, rows}
 *   columns: [{label, unit, title, best: "min" | "max", format(value)}]; the first one names the row
 *   rows: [{name, style, note, cells: [{value, text, spread, note}], inner: [{name, cells, note}]}] */
function dataTable(spec) {
    const best = spec.columns.map((column, i) => bestOf(spec.rows, column, i - 1));
    const body = el("tbody");
    spec.rows.forEach((row, r) => append(body, tableRows(spec, row, r, best)));
    const table = el(
        "table",
        {id: spec.id},
        spec.caption ? el("caption", null, spec.caption) : null,
        el("thead", null, el("tr", null, spec.columns.map(headCell))),
        body,
    );
    return el(
        "div",
        {class: "table-block" + (spec.columns.length > 9 ? " compact" : "")},
        el(
            "div",
            {
                class: "table-scroll",
                tabindex: "0",
                role: "region",
                "aria-label": plain(spec.label || "Table"),
            },
            table,
        ),
        el(
            "div",
            {class: "table-foot"},
            spec.note ? el("p", {class: "note"}, spec.note) : el("span"),
            csvLink(tableCsv(spec), spec.id, "CSV"),
        ),
    );
}

function headCell(column, i) {
    return el(
        "th",
        {scope: "col", class: i ? "number" : null, title: column.title},
        column.label,
        column.unit ? el("span", {class: "unit"}, column.unit) : null,
    );
}

/* The best value of a column, or null when there is nothing to choose from. */
function bestOf(rows, column, i) {
    if (!column.best || i < 0) return null;
    const values = rows.map((row) => row.cells[i] && row.cells[i].value).filter(isNumber);
    if (values.length < 2 || values.every((v) => v === values[0])) return null;
    return column.best === "min" ? smallest(values) : largest(values);
}

function tableRows(spec, row, r, best) {
    const inner = (row.inner || []).map((sub) =>
        el(
            "tr",
            {class: "inner", hidden: true},
            el(
                "th",
                {scope: "row"},
                el("bdi", null, plain(sub.name, 60)),
                sub.note ? el("span", {class: "status"}, plain(sub.note, 200)) : null,
            ),
            sub.cells.map((cell) => bodyCell(cell)),
        ),
    );
    const button = inner.length
        ? el(
              "button",
              {
                  type: "button",
                  class: "disclose",
                  "aria-expanded": "false",
                  "aria-label": "Show the runs of " + plain(row.name, 60),
                  onclick: () => {
                      const open = button.getAttribute("aria-expanded") === "false";
                      button.setAttribute("aria-expanded", String(open));
                      for (const line of inner) line.hidden = !open;
                  },
              },
              "▸",
          )
        : null;
    const head = el(
        "th",
        {scope: "row"},
        el(
            "div",
            {class: "row-name"},
            button,
            row.style ? swatch({style: row.style}) : null,
            el(
                "span",
                null,
                el("bdi", {class: "name"}, plain(row.name, 60)),
                row.note ? el("span", {class: "status"}, plain(row.note, 160)) : null,
            ),
        ),
    );
    return [
        el(
            "tr",
            {"data-row": ""},
            head,
            row.cells.map((cell, i) => bodyCell(cell, best[i + 1])),
        ),
        inner,
    ];
}

function bodyCell(cell, best) {
    const winner = cell && isNumber(best) && cell.value === best;
    return el(
        "td",
        {class: "number" + (winner ? " best" : "")},
        cell ? cell.text : NONE,
        cell && cell.spread ? el("span", {class: "unit"}, cell.spread) : null,
        winner ? el("span", {class: "sr"}, " (best)") : null,
        cell && cell.note ? el("span", {class: "unit"}, cell.note) : null,
    );
}

function tableCsv(spec) {
    const line = (kind, name, cells) =>
        [kind, name].concat(
            cells.map((c) => (c ? (c.value !== undefined && c.value !== null ? c.value : "") : "")),
        );
    const out = [["row"].concat(spec.columns.map((c) => c.label + (c.unit ? " [" + c.unit + "]" : "")))];
    for (const row of spec.rows) {
        out.push(line("all", row.name, row.cells));
        for (const sub of row.inner || []) out.push(line(row.name, sub.name, sub.cells));
    }
    return out;
}
