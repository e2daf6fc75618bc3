/* SPDX-License-Identifier: Apache-2.0 */
/* Attention maps of one sentence: two arms beside each other, any layer and head, and all heads of one arm at a glance. */

function attentionSection(study) {
    const with_ = study.arms.filter((arm) => arm.runs.some((run) => get(run.raw, "attention_map", "layers")));
    const sentence = with_.flatMap((arm) => arm.runs.map((run) => text(run.raw, "attention_map", "text"))).find(Boolean);
    return section("attention", "Attention maps", ["Rows are queries, columns keys. A sink is a bright first column.", sentence ? [" The sentence: ", el("q", null, el("bdi", null, plain(sentence, 400)))] : null],
        mapFigure(study, with_), headsFigure(study, with_));
}

const mapHeads = (run) => largest(list(run.raw, "attention_map", "layers").map((l) => (Array.isArray(l) ? l.length : 0))) || 0;

function armOptions(arms) {
    return arms.map((arm) => ({label: arm.name, value: arm.index}));
}

/* {tokens, map, strip, why} of one run, layer and head ("mean" over heads). */
function mapOf(run, layer, head) {
    const raw = run && get(run.raw, "attention_map"), tokens = list(raw, "tokens"), heads = list(raw, "layers", layer);
    if (!raw || !tokens.length) return {tokens: [], why: run && !run.ok ? "the run " + run.status : "this run has no attention map"};
    const maps = (head === "mean" ? heads : [heads[head]]).map((packed) => unpackBytes(packed, tokens.length ** 2)).filter(Boolean);
    if (!maps.length) return {tokens, why: "no map for this layer and head"};
    const map = Float64Array.from(maps[0], (_, i) => mean(maps.map((m) => m[i])));
    const gates = list(raw, "gate", layer), rows = head === "mean" ? gates : [gates[head]];
    const strip = rows.some(Array.isArray) ? tokens.map((_, q) => mean(rows.map((row) => (Array.isArray(row) ? row[q] : null)))) : null;
    return {tokens, map, strip};
}

function mapFigure(study, arms) {
    const heads = largest(arms.flatMap((a) => a.runs.map(mapHeads))) || 0, left = arms.find((a) => a === study.baseline) || arms[0];
    const right = arms.find((a) => a !== left && a.gated) || arms.find((a) => a !== left) || left;
    const seeds = seedOptions(study);
    return figure({
        id: "fig-attention", wide: true, title: "Attention map, two arms side by side",
        caption: "Attention weight of each query on each key, viridis from 0 (dark) to 1 (bright). The strip beside a gated map is the mean gate score of each query on the same colours.",
        controls: arms.length ? [selectControl("left", "Left", armOptions(arms), left.index), selectControl("right", "Right", armOptions(arms), right.index), selectControl("seed", "Seed", seeds),
            selectControl("layer", "Layer", layerOptions(study, null).slice(1), Math.max(0, study.layers - 1)),
            selectControl("head", "Head", [{label: "mean over heads", value: "mean"}].concat(Array.from({length: heads}, (_, h) => ({label: "head " + (h + 1), value: h})))),
            checkControl("root", "bring out small weights", false)] : [],
        draw: (host, fig) => {
            if (!arms.length) return {empty: whyNoRuns(study, "attention map")};
            const v = fig.values, pair = el("div", {class: "pair"}), shown = v.left === v.right ? [v.left] : [v.left, v.right];
            host.append(pair);
            const wide = host.clientWidth, width = wide >= 700 ? (wide - 24) / 2 : wide, rows = [["arm", "query", "key", "weight"]];
            for (const index of shown) {
                const arm = study.arms[index], found = mapOf(arm.runs.find((run) => run.seed === v.seed) || arm.runs[0], v.layer, v.head);
                const where = "layer " + (v.layer + 1) + ", " + (v.head === "mean" ? "mean over heads" : "head " + (v.head + 1));
                tokenMap(pair, fig, {...found, title: arm.name + " · " + where, root: v.root, stripLabel: "gate", label: "Attention map of " + arm.name + ", " + where}, width);
                if (found.map) found.tokens.forEach((t, q) => found.tokens.slice(0, q + 1).forEach((k, i) => rows.push([arm.name, q + " " + t, i + " " + k, Number(found.map[q * found.tokens.length + i].toFixed(4))])));
            }
            drawScale(host, v.root);
            return {csv: rows};
        },
    });
}

/* The colour bar 0..1 of the maps. */
function drawScale(host, root) {
    const canvas = el("canvas", {class: "scale", "aria-hidden": "true"}), width = Math.min(260, host.clientWidth - 20);
    host.append(canvas);
    const {ctx} = canvasSize(canvas, width + 24, 28);
    for (let x = 0; x < width; x++) {
        ctx.fillStyle = rgb(viridis(root ? Math.sqrt(x / (width - 1)) : x / (width - 1)));
        ctx.fillRect(8 + x, 2, 1.5, 8);
    }
    ctx.fillStyle = cssColour("muted");
    ctx.font = font(11);
    ctx.textAlign = "center";
    ctx.textBaseline = "top";
    for (const v of [0, 0.25, 0.5, 0.75, 1]) ctx.fillText(String(v), 8 + v * width, 14);
}

/* Thumbnails of every head, at most this many layers: evenly spread ones where a model is deeper. */
const THUMB_LAYERS = 12, THUMB_GAP = 6;

function headsFigure(study, arms) {
    const heads = largest(arms.flatMap((a) => a.runs.map(mapHeads))) || 0, few = arms.length > 1 && heads * arms.length <= 16;
    return figure({
        id: "fig-attention-heads", wide: true, title: "All heads at a glance",
        caption: "One thumbnail per layer (down) and head (across), colours as above. A bright left edge is a sink head.",
        controls: arms.length ? [selectControl("arm", "Arm", (few ? [{label: "all arms", value: "all"}] : []).concat(armOptions(arms))), selectControl("seed", "Seed", seedOptions(study))] : [],
        draw: (host, fig) => {
            if (!arms.length) return {empty: whyNoRuns(study, "attention map")};
            const chosen = fig.values.arm === "all" ? arms : [study.arms[fig.values.arm]], box = el("div", {class: "pair"}), parts = chosen.map((arm) => thumbPart(arm, fig.values.seed)).filter((p) => p.heads);
            if (!parts.length) return {empty: "no run of this seed has an attention map"};
            host.append(box);
            const across = parts.reduce((n, p) => n + p.heads, 0), size = clamp(Math.floor((host.clientWidth - parts.length * 54) / across) - THUMB_GAP, 14, 124);
            for (const part of parts) drawThumbnails(box, part, size);
            const step = largest(parts.map((p) => p.step));
            if (step > 1) fig.readout.textContent = "Layers shown: " + parts[0].layers.map((l) => l + 1).join(", ") + ".";
            return {};
        },
    });
}

/* What of an arm's run is drawn: {name, run, heads, n tokens, layers (indices), step}. */
function thumbPart(arm, seed) {
    const run = arm.runs.find((r) => r.seed === seed) || arm.runs[0], raw = run && get(run.raw, "attention_map"), all = list(raw, "layers");
    const step = Math.max(1, Math.ceil(all.length / THUMB_LAYERS));
    return {name: arm.name, run, heads: run && list(raw, "tokens").length ? mapHeads(run) : 0, n: list(raw, "tokens").length, step, layers: all.map((_, i) => i).filter((i) => i % step === 0 || i === all.length - 1)};
}

function drawThumbnails(host, part, size) {
    const left = 30, top = 40, pitch = size + THUMB_GAP, canvas = el("canvas", {role: "img", "aria-label": plain("Attention maps of all heads of " + part.name)});
    host.append(canvas);
    const {ctx, width} = canvasSize(canvas, left + part.heads * pitch, top + part.layers.length * pitch);
    ctx.font = font(12, 600);
    ctx.fillStyle = cssColour("ink");
    ctx.fillText(fitText(ctx, plain(part.name), width - left), left, 12);
    ctx.font = font(11);
    ctx.fillStyle = cssColour("muted");
    ctx.textAlign = "center";
    for (let h = 0; h < part.heads; h += Math.max(1, Math.ceil(26 / pitch))) ctx.fillText("H" + (h + 1), left + h * pitch + size / 2, 31);
    ctx.textAlign = "right";
    ctx.textBaseline = "middle";
    part.layers.forEach((layer, r) => {
        const y = top + r * pitch;
        ctx.fillStyle = cssColour("muted");
        if (r % Math.max(1, Math.ceil(12 / pitch)) === 0) ctx.fillText("L" + (layer + 1), left - 6, y + size / 2);
        for (let h = 0; h < part.heads; h++) {
            ctx.fillStyle = cssColour("grid");
            ctx.fillRect(left + h * pitch, y, size, size);
            const found = unpackBytes(get(part.run.raw, "attention_map", "layers", layer, h), part.n * part.n);
            if (found) drawThumbnail(ctx, found, part.n, left + h * pitch, y, size);
        }
    });
}

function drawThumbnail(ctx, map, n, x0, y0, size) {
    const cell = size / n;
    for (let q = 0; q < n; q++)
        for (let k = 0; k <= q; k++) {
            ctx.fillStyle = rgb(viridis(map[q * n + k]));
            const x = Math.round(x0 + k * cell), y = Math.round(y0 + q * cell);
            ctx.fillRect(x, y, Math.round(x0 + (k + 1) * cell) - x, Math.round(y0 + (q + 1) * cell) - y);
        }
}
