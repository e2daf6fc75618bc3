/* SPDX-License-Identifier: Apache-2.0 */
/* Gate scores: how they are spread, by layer and head, and how they came about. */
const NO_GATES = "no arm that is shown has a gate with recorded scores";

function gatesSection(study) {
    return section(
        "gates",
        "Gate scores",
        "The factor in front of each attention output: 0 closes it, 1 lets it through. Scores are " +
            "taken on held-out windows.",
        el("div", {class: "grid"}, gateHistogram(study), gateOverSteps(study)),
        gateByLayer(study),
        gateBelow(study),
        gateByHead(study),
    );
}

function gateHistogram(study) {
    return figure({
        id: "fig-gate-histogram",
        title: "Distribution of gate scores",
        caption: "Share of all scores in each twentieth of 0 to 1, over seeds.",
        lead: () => {
            const words = valuesInWords(
                shownArms(study).filter((a) => a.gated),
                MEASURES.gate.of,
                share,
            );
            return words ? "Mean: " + words : null;
        },
        controls: [
            selectControl("layer", "Layer", layerOptions(study, {label: "all layers", value: "all"})),
            checkControl("log", "log scale", false),
        ],
        draw: (host, fig) => {
            const arms = shownArms(study).filter((arm) => arm.gated);
            const all = arms.map((arm) => histogramOf(arm, fig.values.layer));
            const series = arms
                .map(
                    (arm, i) =>
                        all[i] && {
                            label: arm.name,
                            style: arm.style,
                            stepped: "middle",
                            points: all[i].shares.map((y, b, s) => ({x: (b + 0.5) / s.length, y})),
                        },
                )
                .filter(Boolean);
            if (!series.length) return {empty: NO_GATES};
            for (const s of series)
                s.points = [
                    {x: 0, y: s.points[0].y},
                    ...s.points,
                    {x: 1, y: s.points[s.points.length - 1].y},
                ];
            const outside = all.reduce((n, h) => n + (h ? h.outside : 0), 0);
            linePlot(host, fig, {
                label: "Histogram of gate scores",
                series,
                x: {label: "gate score", min: 0, max: 1, names: bare},
                y: {
                    label: "share of scores",
                    log: fig.values.log,
                    zero: !fig.values.log,
                    format: percent,
                    tick: percentTick,
                },
            });
            if (outside > 0)
                fig.readout.textContent =
                    percent(outside / all.length) + " of the scores lie outside 0 to 1 and are not drawn.";
            return {legend: armLegend(arms, series), csv: seriesCsv(series, "score", "share")};
        },
    });
}

/* {shares: per bin, outside}: histograms of all runs added up, as shares of all scores. */
function histogramOf(arm, choice) {
    let sums = null;
    let total = 0;
    let outside = 0;
    for (const run of countedRuns(arm)) {
        const layers = list(run.raw, "inspect", "layers");
        for (const layer of choice === "all" ? layers : [layers[choice]]) {
            const hist = list(layer, "gate", "hist");
            if (!hist.length || (sums && sums.length !== hist.length)) continue;
            sums = hist.map((n, i) => (isNumber(n) ? n : 0) + (sums ? sums[i] : 0));
            outside += (number(layer, "gate", "below") || 0) + (number(layer, "gate", "above") || 0);
        }
    }
    if (sums) total = sums.reduce((a, b) => a + b, 0) + outside;
    return total > 0 ? {shares: sums.map((n) => n / total), outside: outside / total} : null;
}

function gateOverSteps(study) {
    return figure({
        id: "fig-gate-steps",
        title: "Mean gate score during training",
        caption: "On the probe text, at steps of training. Gates start near 0.5.",
        controls: [
            selectControl("layer", "Layer", layerOptions(study, {label: "mean over layers", value: "mean"})),
        ],
        draw: (host, fig) => {
            const arms = shownArms(study).filter((arm) => arm.gated);
            const series = armSeries(arms, (run) => probePoints(run, "gate_mean", fig.values.layer));
            if (!series.length) return {empty: NO_GATES};
            linePlot(host, fig, {
                label: "Mean gate score over training steps",
                series,
                x: {label: "step"},
                y: {label: "gate score", zero: true, format: share},
            });
            return {legend: armLegend(arms, series), csv: seriesCsv(series, "step", "gate score")};
        },
    });
}

function gateByLayer(study) {
    const parts = [
        ["mean", "Mean"],
        ["std", "Standard deviation"],
        ["min", "Smallest"],
        ["max", "Largest"],
    ];
    return multiples(study, {
        id: "fig-gate-layer",
        title: "Gate scores by layer",
        y: "gate score",
        gatedOnly: true,
        why: NO_GATES,
        format: (v) => significant(v, 3),
        caption: "Over all tokens, heads and channels of a layer.",
        parts: parts.map(([key, title]) => ({title, pick: (layer) => number(layer, "gate", key)})),
    });
}

function gateBelow(study) {
    return layerFigure(study, {
        id: "fig-gate-below",
        height: 220,
        tick: percentTick,
        title: "Nearly closed gates by layer",
        y: "share of scores",
        gatedOnly: true,
        why: NO_GATES,
        format: percent,
        caption: "Share of the gate scores below a threshold.",
        controls: [
            selectControl("key", "Below", [
                {label: "0.1", value: "below_0.1"},
                {label: "0.5", value: "below_0.5"},
            ]),
        ],
        pick: (layer, values) => number(layer, "gate", values.key),
    });
}

function gateByHead(study) {
    return headFigure(study, {
        id: "fig-gate-head",
        title: "Mean gate score by layer and head",
        gatedOnly: true,
        why: NO_GATES,
        caption: "One map per gated arm, layers upward (L), heads across (H).",
        row: (layer) => list(layer, "gate", "heads_mean"),
        max: (top) => Math.min(1, Math.max(0.1, Math.ceil(top * 10 - 1e-9) / 10)),
    });
}
