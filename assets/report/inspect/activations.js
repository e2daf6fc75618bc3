/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes of activations at the four places of the paper's Figure 6, the surface of tokens by channels, the massive ones
 * by name, and norms of keys and values. */
const PLACES = [
    ["attn_out", "Attention output"],
    ["resid_attn", "Residual after attention"],
    ["ffn_out", "FFN output"],
    ["resid_ffn", "Residual after FFN"],
];

function activationsSection(page) {
    return section(
        "activations",
        "Activations",
        "Largest |h| over all tokens and channels. Massive (Sun et al.): above 100 and at least 1000 times the median " +
            "of its layer.",
        placesFigure(page),
        topFigure(page),
        surfaceFigure(page),
        massiveTable(page),
        el("div", {class: "grid"}, normFigure(page, "value_norm", "Value norms"), normFigure(page, "key_norm", "Key norms")),
    );
}

function placesFigure(page) {
    return figure({
        id: "fig-places",
        wide: true,
        title: "Largest activation at four places",
        caption: "Largest |h| of each layer where it is written and where it stays.",
        controls: [
            selectControl("what", "Show", [
                {label: "largest", value: "max"},
                {label: "largest at position 0", value: "token_0"},
                {label: "largest elsewhere", value: "others"},
                {label: "median", value: "median"},
                {label: "mean square", value: "mean_square"},
            ]),
            checkControl("log", "log scale", true),
        ],
        draw: (host, fig) => {
            const models = shownModels(page);
            return layerPanels(host, fig, {
                models,
                panels: PLACES.map(([key, title]) => ({
                    title,
                    label: title + " by layer",
                    series: modelSeries(models, (l) => number(l, "places", key, fig.values.what)),
                })),
                y: {label: "|h|", log: fig.values.log, zero: true, format: (v) => significant(v, 4)},
                what: "place",
                value: "|h|",
                why: "no activations were measured",
            });
        },
    });
}

function topFigure(page) {
    const options = modelOptions(page.items);
    return figure({
        id: "fig-top",
        wide: true,
        title: "Three largest values and the median, by layer",
        caption: "Residual stream behind each layer, all tokens and channels of all windows (the figure of Sun et al.).",
        controls: [selectControl("model", "Model", options, options.length ? options[0].value : 0)],
        draw: (host, fig) => {
            const m = page.items[fig.values.model];
            if (!m) return {empty: "no model was measured"};
            const curve = (label, style, pick, dash) => ({label, style, dash, points: byLayer(m, pick)});
            const series = [
                curve("largest", seriesStyle(1), (l) => list(l, "top3")[0]),
                curve("second", seriesStyle(2), (l) => list(l, "top3")[1]),
                curve("third", seriesStyle(3), (l) => list(l, "top3")[2]),
                curve("median", seriesStyle(0), (l) => number(l, "residual", "median")),
            ].filter((s) => s.points.some((p) => isNumber(p.y)));
            if (!series.length) return {empty: "no activations were measured"};
            linePlot(host, fig, {
                label: "Three largest activations and the median by layer",
                series,
                x: {label: "layer", integer: true},
                y: {label: "|h|", log: true, format: (v) => significant(v, 4)},
            });
            return {
                legend: series.map((s) => ({label: s.label, style: s.style})),
                csv: seriesCsv(series, "layer", "|h|"),
            };
        },
    });
}

/* ---- the surface ---- */

/* |h| of one layer: {tokens, bins, channels, max, at(t, b), heavy} or null. */
function surfaceOf(m, layer) {
    const raw = get(m.raw, "surface");
    const tokens = list(raw, "tokens");
    const bins = number(raw, "bins");
    const found = list(raw, "layers")[layer];
    const bytes_ = found ? unpackBytes(found.data, tokens.length * bins) : null;
    if (!bytes_) return null;
    const scale = Math.log1p(found.max);
    return {
        tokens,
        bins,
        channels: number(raw, "channels"),
        max: found.max,
        at: (t, b) => Math.expm1(bytes_[t * bins + b] * scale),
        heavy: list(found, "heavy"),
    };
}

function surfaceFigure(page) {
    const models = page.items.filter((m) => list(m.raw, "surface", "tokens").length);
    return figure({
        id: "fig-surface",
        wide: true,
        title: "Activation surface",
        caption:
            "|h| behind one layer: one line for each token (the first in front), channels from left to right, height on " +
            "a logarithmic or linear scale. Marked: the heaviest channels.",
        controls: models.length
            ? [
                  selectControl("model", "Model", modelOptions(models), models[0].index),
                  selectControl("layer", "Layer", layerChoices(page), peakLayer(models[0])),
                  checkControl("log", "log scale", false),
              ]
            : [],
        draw: (host, fig) => {
            const m = models.length ? page.items[fig.values.model] : null;
            const s = m ? surfaceOf(m, fig.values.layer) : null;
            if (!s) return {empty: "the file holds no surface of this layer"};
            drawSurface(host, fig, s, fig.values.log);
            return {
                csv: [["token", "text", "channels from", "largest |h|"]].concat(
                    s.tokens.flatMap((t, i) =>
                        Array.from({length: s.bins}, (_, b) => [i, t, Math.ceil((b * s.channels) / s.bins), s.at(i, b)]),
                    ),
                ),
            };
        },
    });
}

const peakLayer = (m) => number(m.raw, "origins", "peak", "layer") ?? 0;

const ridge = (s, t) => Array.from({length: s.bins}, (_, b) => s.at(t, b));

/* Lines from back (last token) to front, each covering what is behind it. */
function drawSurface(host, fig, s, log) {
    const width = host.clientWidth || 600;
    const n = s.tokens.length;
    const rise = width < 560 ? 140 : 190;
    const depth = clamp(n * 4, 60, 260);
    const slant = Math.min(width * 0.22, 200);
    const left = 8;
    const across = width - slant - 100;
    const tone = log ? (v) => Math.log1p(v) / Math.log1p(s.max) : (v) => v / s.max;
    /* Only as much room on top as the tallest line needs. */
    const reach = (t) => (depth * t) / Math.max(1, n - 1) + rise * Math.max(...ridge(s, t).map(tone));
    const height = Math.max(...s.tokens.map((_, t) => reach(t))) + 56;
    const canvas = el("canvas", {
        role: "img",
        tabindex: "0",
        "aria-label": "Activation surface, " + n + " tokens by " + s.channels + " channels. Arrow keys read tokens.",
    });
    host.append(canvas);
    const {ctx} = canvasSize(canvas, width, height);
    const base = (t) => ({
        x: left + (slant * t) / Math.max(1, n - 1),
        y: height - 34 - (depth * t) / Math.max(1, n - 1),
    });
    const point = (t, b) => {
        const o = base(t);
        return [o.x + (across * (b + 0.5)) / s.bins, o.y - rise * tone(s.at(t, b))];
    };
    for (let t = n - 1; t >= 0; t--) drawRidge(ctx, s, t, point, base(t), across);
    drawSurfaceWords(ctx, s, {point, base, across, width, height, left, n});
    surfaceReading(canvas, fig, s, base, depth, height);
}

function drawRidge(ctx, s, t, point, origin, across) {
    const most = Math.max(...ridge(s, t));
    const heavy = most > 0.02 * s.max;
    ctx.beginPath();
    ctx.moveTo(origin.x, origin.y);
    for (let b = 0; b < s.bins; b++) ctx.lineTo(...point(t, b));
    ctx.lineTo(origin.x + across, origin.y);
    ctx.closePath();
    ctx.fillStyle = cssColour("surface");
    ctx.fill();
    ctx.strokeStyle = heavy ? cssColour("accent") : cssColour("muted");
    ctx.lineWidth = heavy ? 1.5 : 0.6;
    ctx.stroke();
}

function drawSurfaceWords(ctx, s, g) {
    ctx.font = font(11);
    ctx.fillStyle = cssColour("muted");
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    const step = Math.max(1, Math.ceil(14 / (Math.abs(g.base(1).y - g.base(0).y) || 14)));
    for (let t = 0; t < g.n; t += step) {
        const o = g.base(t);
        ctx.fillText(fitText(ctx, tokenText(s.tokens[t], 12), g.width - o.x - g.across - 8), o.x + g.across + 6, o.y);
    }
    ctx.textBaseline = "top";
    ctx.fillText("channel 0", g.left, g.height - 28);
    ctx.textAlign = "right";
    ctx.fillText(String(s.channels - 1), g.left + g.across, g.height - 28);
    ctx.textAlign = "left";
    ctx.font = font(11, 600);
    ctx.fillStyle = cssColour("ink");
    const taken = [];
    s.heavy.slice(0, 4).forEach((h) => {
        if (Math.abs(h.value) < 0.02 * s.max) return;
        const [x, y] = g.point(h.position, Math.floor((h.channel * s.bins) / s.channels));
        const words = "channel " + h.channel + ": " + significant(h.value, 3);
        const wide = ctx.measureText(words).width;
        const at = {x: clamp(x - wide / 2, 2, g.width - wide - 2), y: Math.max(2, y - 16)};
        while (taken.some((o) => Math.abs(o.y - at.y) < 13 && Math.abs(o.x - at.x) < wide + 8)) at.y += 13;
        taken.push(at);
        ctx.lineWidth = 4;
        ctx.strokeStyle = cssColour("surface");
        ctx.strokeText(words, at.x, at.y);
        ctx.fillText(words, at.x, at.y);
    });
}

function surfaceReading(canvas, fig, s, base, depth, height) {
    let at = 0;
    const say = () => {
        const values = ridge(s, at);
        const top = values.indexOf(Math.max(...values));
        const from = Math.ceil((top * s.channels) / s.bins);
        const to = Math.ceil(((top + 1) * s.channels) / s.bins) - 1;
        fig.readout.textContent =
            "Token " + at + " “" + tokenText(s.tokens[at], 24) + "”: largest |h| " + significant(values[top], 3) +
            " in channel" + (to > from ? "s " + from + "–" + to : " " + from);
    };
    canvas.addEventListener("pointermove", (event) => {
        const n = s.tokens.length;
        at = clamp(Math.round(((height - 34 - event.offsetY) / depth) * (n - 1)), 0, n - 1);
        say();
    });
    canvas.addEventListener("keydown", (event) => {
        const move = {ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1}[event.key];
        if (!move) return;
        event.preventDefault();
        at = clamp(at + move, 0, s.tokens.length - 1);
        say();
    });
}

/* ---- by name ---- */

function massiveTable(page) {
    const rows = page.items.flatMap((m) => massiveRows(page, m));
    if (!rows.length)
        return el("p", {class: "note"}, "No activation is massive by Sun's rule in any of the models.");
    return dataTable({
        id: "tab-massive",
        label: "Massive activations",
        caption: "Massive activations",
        columns: [
            {label: "Layer and place"},
            {label: "Massive", unit: "elements"},
            {label: "Largest"},
            {label: "× median"},
            {label: "Channels", unit: "of the largest"},
            {label: "Positions", unit: "of the largest"},
        ],
        rows,
        note: "▸ opens the largest elements, each with its window, position and channel.",
    });
}

/* One row for neighbouring layers whose massive elements stand in the same channels and positions. */
function massiveRows(page, m) {
    const groups = [];
    for (const [key, title] of PLACES)
        m.layers.forEach((l, layer) => {
            const p = get(l, "places", key);
            if (!(number(p, "massive") > 0)) return;
            const bound = Math.max(100, 1000 * p.median);
            const top = list(p, "top").filter((t) => Math.abs(t.value) >= bound);
            const distinct = (of) => [...new Set(top.map(of))].sort((x, y) => x - y).slice(0, 6).join(", ");
            const one = {title, from: layer, to: layer, top, massive: p.massive, ratio: p.max / p.median};
            one.channels = distinct((t) => t.channel);
            one.positions = distinct((t) => t.position);
            const last = groups[groups.length - 1];
            const same = ["title", "channels", "positions"].every((k) => last && last[k] === one[k]);
            if (!same || last.to !== layer - 1) return void groups.push(one);
            last.to = layer;
            last.massive += one.massive;
            if (Math.abs(top[0].value) > Math.abs(last.top[0].value)) last.top = top;
            last.ratio = Math.max(last.ratio, one.ratio);
            return undefined;
        });
    groups.sort((x, y) => x.from - y.from);
    return groups.map((g) => ({
        name:
            (page.items.length > 1 ? plain(m.name, 24) + ", " : "") +
            (g.to > g.from ? "layers " + g.from + "–" + g.to : "layer " + g.from) + ", " + g.title,
        cells: [
            {value: g.massive, text: count(g.massive)},
            {value: g.top[0].value, text: significant(g.top[0].value, 5)},
            {value: g.ratio, text: count(Math.round(g.ratio))},
            {value: g.channels, text: g.channels},
            {value: g.positions, text: g.positions},
        ],
        inner: g.top.map((t) => ({
            name: "window " + t.window + ", position " + t.position + ", channel " + t.channel,
            cells: [null, {value: t.value, text: significant(t.value, 5)}, null, null, null],
        })),
    }));
}

function normFigure(page, key, title) {
    return figure({
        id: "fig-" + key.replace("_", "-"),
        title,
        caption:
            "Mean L2 norm at position 0 (solid) and elsewhere (dashed), mean over key/value heads. A sink's " +
            (key === "value_norm" ? "value is small: attention to it adds little." : "key decides who looks at it."),
        draw: (host, fig) => {
            const models = shownModels(page);
            const of = (m, part) => byLayer(m, (l) => mean(list(l, key, part)));
            const series = models
                .flatMap((m) => [
                    {label: m.name + ", position 0", style: m.style, points: of(m, "token_0")},
                    {label: m.name + ", others", style: m.style, dash: [5, 4], points: of(m, "others")},
                ])
                .filter((s) => s.points.some((p) => isNumber(p.y)));
            if (!series.length) return {empty: "norms were not measured"};
            linePlot(host, fig, {
                label: title + " by layer",
                series,
                x: {label: "layer", integer: true},
                y: {label: "L2 norm", zero: true, format: (v) => significant(v, 3)},
            });
            return {
                legend: modelLegend(models).concat([{label: "other positions", mark: "dash"}]),
                csv: seriesCsv(series, "layer", title),
            };
        },
    });
}
