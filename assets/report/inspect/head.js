/* SPDX-License-Identifier: Apache-2.0 */
/* The top of the page: what was inspected, one card for each model, the table of all of them, interventions. */

function headSection(page) {
    const raw = page.raw;
    const first = page.items[0];
    const facts = [
        ["Text", text(raw, "text", "name")],
        ["Date", (text(raw, "created") || "").replace("T", " ").replace(/:\d\dZ$/, " UTC")],
        [
            "Windows",
            first
                ? number(first.raw, "inspect", "windows") + " × " + number(first.raw, "inspect", "seq_len") + " tokens"
                : null,
        ],
        [
            "In front of every window",
            first ? tokenText(text(first.raw, "first_token", "text") || "nothing", 30) : null,
        ],
        ["Machine", text(raw, "machine", "cpu")],
        ["Sluice", text(raw, "version")],
    ];
    const title = page.steps
        ? "Checkpoints of " + plain(text(first.raw, "path") || "", 90).replace(/\/?(checkpoints\/)?step-\d+\/?$/, "")
        : page.items.map((m) => plain(m.name, 40)).join(" · ");
    return el(
        "header",
        {class: "top"},
        el("p", {class: "kicker"}, "Sluice inspect"),
        el("h1", null, el("bdi", null, plain(title, 160))),
        el(
            "dl",
            {class: "facts"},
            facts
                .filter(([, value]) => value)
                .map(([key, value]) =>
                    el("div", null, el("dt", null, key), el("dd", null, el("bdi", null, plain(value, 90)))),
                ),
        ),
        failedModels(page).map((m) =>
            el("p", {class: "empty"}, plain(m.name, 80) + " was not measured: " + plain(m.error, 300)),
        ),
    );
}

/* What the numbers say about where the sink begins, in one sentence or two. */
function originWords(m) {
    const sink = number(m.raw, "origins", "sink_layer");
    const peak = get(m.raw, "origins", "peak");
    const words = [
        sink === null
            ? "No layer gives more than 0.3 of its attention to the first token."
            : "The sink begins in layer " + sink + ": the first-token share is above 0.3 in " +
              number(m.raw, "origins", "sink_layers") + " layers from there on.",
    ];
    if (peak)
        words.push(
            "The largest activation is " + significant(peak.value, 4) + ", behind layer " + peak.layer +
                " in channel " + peak.channel + " at position " + peak.position + ", written by its " +
                (peak.place === "ffn_out" ? "MLP" : "attention") + (peak.massive ? "; it is massive." : "."),
        );
    return words.join(" ");
}

function cardFact(name, value, note) {
    return el("div", null, el("dt", null, name), el("dd", {class: "big"}, value), note ? el("dd", {class: "note"}, note) : null);
}

function card(m) {
    const of = (...path) => number(m.raw, "inspect", ...path);
    const outside = of("f_attn_mean", "from_1");
    return el(
        "article",
        {class: "card"},
        el("h3", null, swatch({style: m.style}), " ", el("bdi", null, plain(m.name, 60))),
        el(
            "dl",
            null,
            cardFact("First-token share", share(outside), "uniform " + share(number(m.raw, "uniform_share", "from_1"))),
            cardFact("Sink heads", count(of("sink_heads")), "of " + count(of("heads"))),
            cardFact("M-Act", significant(of("m_act_mean"), 4), "mean of layer maxima"),
            cardFact("Massive", count(of("massive_total")), "activations"),
            isGatedModel(m) ? cardFact("Mean gate", share(of("gate_mean")), "score") : null,
            of("loss", "perplexity") !== null
                ? cardFact("Perplexity", significant(of("loss", "perplexity"), 4), fixed(of("loss", "loss"), 3) + " nats")
                : null,
        ),
        el("p", {class: "note"}, originWords(m)),
    );
}

const NUMBERS = [
    {label: "Share", unit: "first token", of: (i) => number(i, "f_attn_mean", "from_1"), format: (v) => fixed(v, 4)},
    {label: "Sink rate", unit: "at 0.3", of: (i) => number(i, "sink_rate_0.3_mean"), format: share},
    {label: "Sink rate", unit: "first 64 tokens", of: (i) => number(i, "sink_rate_0.3_64_mean"), format: share},
    {label: "Sink heads", of: (i) => number(i, "sink_heads"), format: count},
    {label: "M-Act", of: (i) => number(i, "m_act_mean"), format: (v) => significant(v, 4)},
    {label: "Massive", of: (i) => number(i, "massive_total"), format: count},
    {label: "Gate", unit: "mean", of: (i) => number(i, "gate_mean"), format: share},
    {label: "Loss", unit: "nats", of: (i) => number(i, "loss", "loss"), format: (v) => fixed(v, 4)},
    {label: "Perplexity", of: (i) => number(i, "loss", "perplexity"), format: (v) => significant(v, 5)},
];

const numberCells = (inspect) => NUMBERS.map((n) => ({value: n.of(inspect), text: n.format(n.of(inspect))}));
const numberColumns = (first) =>
    [{label: first}].concat(NUMBERS.map((n) => ({label: n.label, unit: n.unit})));

function summarySection(page) {
    const few = page.items.length <= 6 && !page.steps;
    return section(
        "summary",
        "At a glance",
        null,
        few ? el("div", {class: "cards"}, page.items.map(card)) : null,
        page.items.length > 1 ? modelTable(page) : null,
        page.items.length > 1 ? dataNote(page) : null,
    );
}

function modelTable(page) {
    return dataTable({
        id: "tab-models",
        label: "Models",
        caption: "Models side by side",
        columns: numberColumns("Model"),
        rows: page.items.map((m) => ({
            name: m.name,
            style: m.style,
            note: count(number(m.raw, "parameters")) + " parameters, " + m.layers.length + " layers",
            cells: numberCells(get(m.raw, "inspect")),
        })),
    });
}

/* Losses can be compared only where the windows hold the same tokens. */
function dataNote(page) {
    const shapes = new Set(
        page.items.map((m) => number(m.raw, "inspect", "windows") + "x" + number(m.raw, "inspect", "seq_len")),
    );
    const vocabularies = new Set(page.items.map((m) => JSON.stringify(list(m.raw, "map", "tokens").slice(0, 16))));
    if (shapes.size < 2 && vocabularies.size < 2) return null;
    return el(
        "p",
        {class: "note"},
        "The models cut the text into different tokens or windows: their losses per token cannot be compared.",
    );
}

/* ---- interventions ---- */

const hasChanges = (page) => page.items.some((m) => list(m.raw, "interventions").length);

function changesSection(page) {
    return section(
        "interventions",
        "What if",
        "The same windows with something inside the model changed in every layer. What the loss does says whether " +
            "the model needs it.",
        page.items
            .filter((m) => list(m.raw, "interventions").length)
            .map((m) => [changeTable(page, m), changeFigure(m)]),
    );
}

function changeTable(page, m) {
    const rows = [{name: "as it is", inspect: get(m.raw, "inspect")}].concat(list(m.raw, "interventions"));
    return dataTable({
        id: "tab-interventions-" + m.index,
        label: "Interventions, " + m.name,
        caption: page.items.length > 1 ? m.name : "Interventions",
        columns: numberColumns("Intervention"),
        rows: rows.map((r) => ({
            name: plain(r.name, 60),
            note: text(r, "error"),
            cells: text(r, "error") ? NUMBERS.map(() => null) : numberCells(r.inspect),
        })),
    });
}

function changeFigure(m) {
    return figure({
        id: "fig-interventions-" + m.index,
        wide: true,
        title: "Every layer under the interventions" + (m.name ? ": " + plain(m.name, 40) : ""),
        caption: "First-token share, and largest |h| behind each layer.",
        draw: (host, fig) => {
            const rows = list(m.raw, "interventions").filter((r) => get(r, "inspect"));
            const curves = (pick, own) =>
                [{label: "as it is", style: seriesStyle(0), points: byLayer(m, own)}].concat(
                    rows.map((r, i) => ({
                        label: plain(r.name, 40),
                        style: seriesStyle(i + 1),
                        points: list(r, "inspect", "by_layer", pick).map((y, x) => ({x, y})),
                    })),
                );
            if (!rows.length) return {empty: "no intervention could be made on this model"};
            const shares = curves("f_attn", (l) => number(l, "f_attn", "from_1"));
            const most = curves("max", (l) => number(l, "max_abs", "resid_ffn"));
            const box = el("div", {class: "multiples"});
            host.append(box);
            linePlot(box, fig, {
                title: "First-token share",
                label: "First-token share by layer under each intervention",
                series: shares,
                x: {label: "layer", integer: true},
                y: {label: "share", zero: true, format: share},
            });
            linePlot(box, fig, {
                title: "Largest |h|",
                label: "Largest activation by layer under each intervention",
                series: most,
                x: {label: "layer", integer: true},
                y: {label: "max |h|", log: true, format: (v) => significant(v, 4)},
            });
            return {
                legend: shares.map((s) => ({label: s.label, style: s.style})),
                csv: seriesCsv(shares, "layer", "first-token share").concat(seriesCsv(most, "layer", "max |h|")),
            };
        },
    });
}
