/* SPDX-License-Identifier: Apache-2.0 */
/* Where attention goes: layer x head maps, the attention map of the head that was picked there, curves by layer, query
 * and distance, and the paper's own picture. */

function sinkSection(page) {
    const picked = attentionMap(page);
    return section(
        "sink",
        "Attention",
        "Rows are layers, columns heads. Click a cell (or move with the arrow keys and press Enter) to see the " +
            "attention map of that head below.",
        headHeat(page, picked),
        picked ? picked.node : null,
        shareByLayer(page),
        el("div", {class: "grid"}, shareByQuery(page), distanceFigure(page)),
        kindTable(page),
    );
}

/* Values of one measure as a panel of a heat map. */
function headPanel(m, measure) {
    const values = m.layers.map((l) => measure.of(l));
    return {title: m.name, rows: m.layers.length, cols: Math.max(1, m.heads), values};
}

function headHeat(page, picked) {
    const options = measuresOf(page);
    return figure({
        id: "fig-heads",
        wide: true,
        title: "Every head of every layer",
        caption: "Mean over windows and queries from the second on.",
        controls: options.length ? [selectControl("measure", "Show", options, options[0].value)] : [],
        draw: (host, fig) => {
            const models = shownModels(page);
            if (!models.length) return {empty: "all models are switched off"};
            if (!options.length) return {empty: "no head has a value; windows of one token leave nothing to choose"};
            const measure = fig.values.measure;
            const panels = models.map((m) => headPanel(m, measure));
            const max = measure.max || largest(panels.flatMap((p) => p.values.flat())) || 1;
            const uniform = measure === HEAD_MEASURES[0] ? number(models[0].raw, "uniform_share", "from_1") : null;
            heatGrid(host, fig, {
                panels,
                base: 0,
                tall: true,
                rowName: "",
                colName: "",
                max,
                label: "Layer by head: " + measure.label,
                format: (v) => (max > 1 ? significant(v, 2) : fixed(v, 2)),
                read: (v) => significant(v, 4),
                reference: uniform === null ? null : {value: uniform, label: "uniform"},
                picked: picked ? picked.at(models) : null,
                onPick: picked
                    ? (p, r, c) => {
                          picked.pick(models[p], r, c);
                          figureDraw(fig);
                          picked.node.scrollIntoView({block: "nearest", behavior: "smooth"});
                      }
                    : null,
            });
            return {csv: gridCsv(panels, "head", measure.label)};
        },
    });
}

const SPANS = [16, 32, 48, 64, 96];

/* The map of one head, with the means to choose it here as well. {node, pick, at} */
function attentionMap(page) {
    const models = page.items.filter((m) => list(m.raw, "map", "tokens").length);
    if (!models.length) return null;
    const most = largest(models.map((m) => list(m.raw, "map", "tokens").length));
    const heads = largest(models.map((m) => m.heads));
    const start = strongest(models[0]);
    let fig;
    const node = figure({
        id: "fig-map",
        wide: true,
        title: "Attention map",
        caption:
            "Weight of each query (row) on each key (column), viridis from 0 (dark) to 1 (bright). Point at a cell, or " +
            "use the arrow keys, to read a weight. The strip beside a gated map is the mean gate score of each query.",
        controls: [
            selectControl("model", "Model", modelOptions(models), models[0].index),
            selectControl("layer", "Layer", layerChoices(page), start.layer),
            selectControl(
                "head",
                "Head",
                [{label: "mean over heads", value: "mean"}].concat(
                    Array.from({length: heads}, (_, h) => ({label: "head " + h, value: h})),
                ),
                start.head,
            ),
            selectControl(
                "span",
                "Tokens",
                SPANS.filter((n) => n < most)
                    .map((n) => ({label: "first " + n, value: n}))
                    .concat([{label: "all " + most, value: most}]),
                most <= 48 ? most : 48,
            ),
            selectControl(
                "from",
                "From token",
                Array.from({length: Math.ceil(most / 8)}, (_, i) => ({label: String(8 * i), value: 8 * i})),
                0,
            ),
            checkControl("root", "bring out small weights", false),
        ],
        draw: (host, self) => {
            fig = self;
            const v = self.values;
            const m = page.items[v.model];
            const found = headMap(m, v.layer, v.head);
            const cut = cutMap(found, v.from, v.span);
            const name = "layer " + v.layer + ", " + (v.head === "mean" ? "mean over heads" : "head " + v.head);
            tokenMap(
                host,
                self,
                {
                    title: (page.items.length > 1 ? m.name + ", " : "") + name,
                    note: headWords(m, v.layer, v.head),
                    tokens: cut.tokens,
                    map: cut.map,
                    strip: cut.strip,
                    root: v.root,
                    label: "Attention map of " + name,
                    why: found.why,
                },
                host.clientWidth || 600,
            );
            if (!cut.map) return {empty: found.why || "no tokens from there on"};
            return {
                csv: [["query", "key", "query token", "key token", "weight"]].concat(
                    cut.tokens.flatMap((t, q) =>
                        cut.tokens
                            .slice(0, q + 1)
                            .map((k, i) => [v.from + q, v.from + i, t, k, cut.map[q * cut.tokens.length + i]]),
                    ),
                ),
            };
        },
    });
    return {
        node,
        pick: (m, layer, head) => choose(fig, {model: m.index, modelAt: models.indexOf(m), layer, head}),
        at: (shown) => {
            const v = fig ? fig.values : {model: models[0].index, ...start};
            const p = shown.findIndex((m) => m.index === v.model);
            return p < 0 || v.head === "mean" ? null : {p, r: v.layer, c: v.head};
        },
    };
}

/* Sets controls from outside: the values and what the elements show. */
function choose(fig, values) {
    Object.assign(fig.values, values);
    const words = {
        Model: null,
        Layer: "layer " + values.layer,
        Head: "head " + values.head,
    };
    for (const label of fig.node.querySelectorAll("label.control")) {
        const select = label.querySelector("select");
        const name = label.firstChild.textContent.trim();
        if (!select || !(name in words)) continue;
        const wanted = name === "Model" ? null : words[name];
        for (const option of select.options) if (option.textContent === wanted) option.selected = true;
        if (name === "Model") select.selectedIndex = [...select.options].findIndex((_, i) => i === values.modelAt);
    }
    figureDraw(fig);
}

/* The head with the largest first-token share. */
function strongest(m) {
    let best = {layer: 0, head: 0, value: -1};
    m.layers.forEach((l, layer) =>
        list(l, "f_attn_heads", "from_1").forEach((value, head) => {
            if (isNumber(value) && value > best.value) best = {layer, head, value};
        }),
    );
    return {layer: best.layer, head: best.head};
}

function headWords(m, layer, head) {
    const l = m.layers[layer];
    if (head === "mean") return "first-token share " + share(number(l, "f_attn", "from_1"));
    const kind = list(l, "heads", "kind")[head];
    return (
        "first-token share " + share(list(l, "f_attn_heads", "from_1")[head]) +
        (kind && kind !== "other" ? ", a " + KINDS[kind] + " head" : "")
    );
}

/* Rows and columns from `from` on, at most `span` of them. */
function cutMap(found, from, span) {
    const n = found.tokens.length;
    const to = Math.min(n, from + span);
    if (!found.map || to <= from) return {tokens: [], map: null, strip: null};
    const size = to - from;
    const map = new Float64Array(size * size);
    for (let q = 0; q < size; q++)
        for (let k = 0; k <= q; k++) map[q * size + k] = found.map[(from + q) * n + from + k];
    return {
        tokens: found.tokens.slice(from, to),
        map,
        strip: found.strip ? found.strip.slice(from, to) : null,
    };
}

function shareByLayer(page) {
    return byLayerFigure(page, {
        id: "fig-share-layer",
        wide: true,
        title: "First-token share by layer",
        caption: "Mean over heads, windows and the queries chosen. Dashed: uniform attention, and the mean over layers.",
        lead: () =>
            shownModels(page)
                .map((m) => plain(m.name, 30) + " " + share(number(m.raw, "inspect", "f_attn_mean", "from_1")))
                .slice(0, 6)
                .join(" · "),
        controls: [
            selectControl("range", "Queries", [
                {label: "all but the first", value: "from_1"},
                {label: "all", value: "all"},
                {label: "from the fifth", value: "from_4"},
                {label: "the last three quarters", value: "from_quarter"},
            ]),
        ],
        pick: (layer, v) => number(layer, "f_attn", v.range),
        y: "share of attention on position 0",
        format: share,
        marks: (models, v) =>
            uniformLines(models, v.range).concat(
                models.length <= 3
                    ? models.map((m) => ({
                          y: number(m.raw, "inspect", "f_attn_mean", v.range),
                          label: models.length > 1 ? "mean, " + plain(m.name, 24) : "mean over layers",
                      }))
                    : [],
            ),
    });
}

function shareByQuery(page) {
    return figure({
        id: "fig-share-query",
        title: "First-token share by query",
        caption: "Mean over heads and windows; long windows in bins of queries. Dashed: 1 / (q + 1).",
        controls: [selectControl("layer", "Layer", layerChoices(page, {label: "mean over layers", value: "mean"}))],
        draw: (host, fig) => {
            const models = shownModels(page);
            const points = (m) => {
                const layers = fig.values.layer === "mean" ? m.layers : [m.layers[fig.values.layer]];
                const length = number(m.raw, "inspect", "seq_len");
                const bins = list(layers[0], "share_queries").length;
                return Array.from({length: bins}, (_, i) => ({
                    x: Math.floor((i * length) / bins),
                    y: mean(layers.map((l) => list(l, "share_queries")[i])),
                })).filter((p) => p.x > 0);
            };
            const series = models
                .map((m) => ({label: m.name, style: m.style, points: points(m)}))
                .filter((s) => s.points.some((p) => isNumber(p.y)));
            if (!series.length) return {empty: "windows of one token have no query to show"};
            const longest = series.reduce((a, s) => (s.points.length > a.points.length ? s : a));
            linePlot(host, fig, {
                label: "First-token share by query",
                series: series.concat([
                    {label: "uniform", points: longest.points.map((p) => ({x: p.x, y: 1 / (p.x + 1)}))},
                ]),
                x: {label: "query"},
                y: {label: "share on position 0", zero: true, format: share},
            });
            return {
                legend: modelLegend(models).concat([{label: "uniform attention", mark: "dash"}]),
                csv: seriesCsv(series, "query", "first-token share"),
            };
        },
    });
}

function distanceFigure(page) {
    const name = (i) => (i < 2 ? String(i) : 2 ** (i - 1) + "–" + (2 ** i - 1));
    return figure({
        id: "fig-distance",
        title: "How far attention reaches",
        caption: "Weight by the distance from query to key, in bins that double; mean over heads and queries.",
        controls: [selectControl("layer", "Layer", layerChoices(page, {label: "mean over layers", value: "mean"}))],
        draw: (host, fig) => {
            const models = shownModels(page);
            const series = models
                .map((m) => {
                    const layers = fig.values.layer === "mean" ? m.layers : [m.layers[fig.values.layer]];
                    const last = Math.ceil(Math.log2(Math.max(2, number(m.raw, "inspect", "seq_len")))) + 1;
                    const points = Array.from({length: last}, (_, i) => ({
                        x: i,
                        y: mean(layers.map((l) => list(l, "distance")[i])),
                    }));
                    return {label: m.name, style: m.style, points, dots: true};
                })
                .filter((s) => s.points.some((p) => isNumber(p.y)));
            if (!series.length) return {empty: "rows of attention were not measured"};
            linePlot(host, fig, {
                label: "Attention by distance",
                series,
                x: {label: "distance", integer: true, names: (v) => (Number.isInteger(v) ? name(v) : "")},
                y: {label: "share of attention", zero: true, format: share},
            });
            return {legend: modelLegend(models), csv: seriesCsv(series, "distance bin", "share")};
        },
    });
}

const KINDS = {
    sink: "sink",
    previous: "previous-token",
    duplicate: "duplicate-token",
    induction: "induction",
    self: "self",
    other: "other",
};

function kindTable(page) {
    const models = page.items.filter((m) => m.layers.some((l) => list(l, "heads", "kind").length));
    if (!models.length) return null;
    return dataTable({
        id: "tab-kinds",
        label: "Kinds of heads",
        caption: "Kinds of heads",
        columns: [{label: "Model"}].concat(Object.values(KINDS).map((label) => ({label, unit: "heads"}))),
        rows: models.map((m) => ({
            name: m.name,
            style: m.style,
            note: percent(mean(m.layers.map((l) => number(l, "matched_queries")))) + " of queries repeat a token",
            cells: Object.keys(KINDS).map((kind) => {
                const value = m.layers.flatMap((l) => list(l, "heads", "kind")).filter((k) => k === kind).length;
                return {value, text: count(value)};
            }),
        })),
        note: "A head belongs to the first kind that fits: sink, then the largest of the other scores above 0.3.",
    });
}

/* ---- the paper's picture ---- */

const hasDemo = (page) => Boolean(text(page.raw, "map_text")) && hasMaps(page);

/* Four layers spread as 1, 7, 21 and 28 are over 28, counted from 1. */
function demoLayers(layers) {
    return [...new Set([1 / 28, 7 / 28, 21 / 28, 1].map((f) => Math.max(1, Math.round(f * layers)) - 1))];
}

function demoSection(page) {
    return section(
        "demo",
        "Four layers of one sentence",
        ["Attention averaged over heads: ", el("q", null, el("bdi", null, plain(text(page.raw, "map_text"), 300)))],
        page.items.filter((m) => list(m.raw, "map", "tokens").length).map((m) => demoFigure(page, m)),
    );
}

function demoFigure(page, m) {
    return figure({
        id: "fig-demo-" + m.index,
        wide: true,
        title: page.items.length > 1 ? plain(m.name, 60) : "Attention maps, mean over heads",
        caption: "Layers as far apart as the first, seventh, twenty-first and last of the paper's 28.",
        draw: (host, fig) => {
            const grid = el("div", {class: "pair"});
            host.append(grid);
            const across = host.clientWidth >= 700 ? 2 : 1;
            const width = (host.clientWidth - 24 * (across - 1)) / across;
            for (const layer of demoLayers(m.layers.length)) {
                const found = headMap(m, layer, "mean");
                const cell = el("div", {style: "width:" + width + "px"});
                grid.append(cell);
                tokenMap(
                    cell,
                    fig,
                    {
                        title: "Layer " + layer,
                        note: "first-token share on the windows: " + share(number(m.layers[layer], "f_attn", "from_1")),
                        tokens: found.tokens,
                        map: found.map,
                        strip: found.strip,
                        label: "Attention map of layer " + layer + ", mean over heads",
                        why: found.why,
                    },
                    width,
                );
            }
            return {};
        },
    });
}
