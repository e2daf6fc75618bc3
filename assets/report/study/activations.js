/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes of activations: largest values by place and layer, the first token against the others, value
 * norms. */
const PLACES = [
    ["attn_out", "Attention output"],
    ["resid_attn", "Residual after attention"],
    ["ffn_out", "FFN output"],
    ["resid_ffn", "Residual after FFN"],
];

function activationsSection(study) {
    return section(
        "activations",
        "Activations",
        "Largest absolute values |h| over held-out windows. “Massive activation” is Sun's term for " +
            "values above 100 and 1000 times the median of their layer; smaller ones are called peaks " +
            "here.",
        maxByPlace(study),
        peakFigure(study),
        el("div", {class: "grid"}, residualOverSteps(study), valueNorms(study)),
        massiveNote(study),
    );
}

/* Several small plots with one key. parts: [{title, pick}] */
function multiples(study, spec) {
    return figure({
        ...spec,
        wide: true,
        draw: (host, fig) => {
            const arms = shownArms(study).filter((arm) => !spec.gatedOnly || arm.gated);
            const rows = [["series", "kind", "layer", "value", "part"]];
            const box = el("div", {class: "multiples"});
            host.append(box);
            const all = [];
            for (const part of spec.parts) {
                const series = armSeries(arms, (run) => layerPoints(run, part.pick), {
                    dots: study.layers <= 12,
                });
                if (!series.length) continue;
                all.push(...series);
                rows.push(
                    ...seriesCsv(series, "layer", "value")
                        .slice(1)
                        .map((row) => [...row, part.title]),
                );
                linePlot(box, fig, {
                    title: part.title,
                    label: spec.title,
                    height: 230,
                    series,
                    x: {label: "layer", integer: true},
                    y: {
                        label: spec.y,
                        log: fig.values.log || false,
                        zero: !fig.values.log,
                        min: spec.min,
                        max: spec.max,
                        format: spec.format,
                    },
                });
            }
            return all.length
                ? {legend: armLegend(arms, all), csv: rows}
                : {empty: spec.why || whyNoRuns(study, "layer statistics")};
        },
    });
}

function maxByPlace(study) {
    return multiples(study, {
        id: "fig-max-activation",
        title: "Largest activation by layer",
        y: "max |h|",
        format: (v) => significant(v, 4),
        caption: "Largest absolute value over all tokens and channels at four places of each layer.",
        controls: [checkControl("log", "log scale", false)],
        lead: () => {
            const words = valuesInWords(shownArms(study), MEASURES.act.of, (v) => significant(v, 3));
            return words ? "Layer output, mean over layers (M-Act): " + words : null;
        },
        parts: PLACES.map(([key, title]) => ({title, pick: (layer) => number(layer, "max_abs", key)})),
    });
}

function peakFigure(study) {
    const part = (name) => (layer) => number(layer, "first_token_peak", name);
    const ratio = (over) => (layer) =>
        part("token_0")(layer) !== null && part(over)(layer) > 0
            ? part("token_0")(layer) / part(over)(layer)
            : null;
    return figure({
        id: "fig-first-token-peak",
        wide: true,
        title: "First token against all others in the residual stream",
        caption:
            "● largest |h| at position 0, ○ largest |h| at any other position, | median |h| of all " +
            "values; logarithmic axis. Right: position 0 in multiples.",
        controls: [
            selectControl(
                "layer",
                "Layer",
                layerOptions(study, {label: "the largest layer", value: "largest"}),
            ),
        ],
        draw: (host, fig) => {
            const arms = shownArms(study);
            const at = fig.values.layer;
            const of = (pick) => (arm) => mean(countedRuns(arm).map((run) => overLayers(run, at, pick)));
            const sets = arms.map((arm) => [
                {value: of(part("median"))(arm), kind: "tick"},
                {value: of(part("others"))(arm), kind: "ring"},
                {value: of(part("token_0"))(arm), kind: "circle"},
            ]);
            if (!sets.flat().some((m) => isNumber(m.value)))
                return {empty: whyNoRuns(study, "first-token peaks")};
            dotRows(
                host,
                armRows(arms),
                [
                    {
                        title: "|h| in the residual",
                        unit: "mean over seeds, log",
                        log: true,
                        join: true,
                        marks: sets,
                    },
                    {
                        title: "Position 0 ÷ others",
                        unit: "ratio of the largest |h|",
                        marks: arms.map((arm) =>
                            armMarks(arm, (run) => overLayers(run, at, ratio("others"))),
                        ),
                        reference: {value: 1, label: "equal"},
                    },
                    {
                        title: "Position 0 ÷ median",
                        unit: "ratio",
                        zero: true,
                        marks: arms.map((arm) =>
                            armMarks(arm, (run) => overLayers(run, at, ratio("median"))),
                        ),
                    },
                ],
                "Largest residual value of the first token, of all others, and the median, by arm",
            );
            const keys = [
                {label: "position 0", mark: "circle"},
                {label: "largest other", mark: "ring"},
                {label: "median", mark: "tick"},
            ];
            return {
                legend: keys,
                csv: [["arm", "median", "largest other", "position 0"]].concat(
                    arms.map((arm, i) => [arm.name].concat(sets[i].map((m) => m.value))),
                ),
            };
        },
    });
}

function residualOverSteps(study) {
    return figure({
        id: "fig-residual-steps",
        title: "Largest residual value during training",
        caption: "Largest |h| of the residual stream on the probe text, at steps of training.",
        controls: [
            selectControl(
                "layer",
                "Layer",
                layerOptions(study, {label: "the largest layer", value: "largest"}),
            ),
            checkControl("log", "log scale", false),
        ],
        draw: (host, fig) => {
            const arms = shownArms(study);
            const series = armSeries(arms, (run) => probePoints(run, "max_abs_residual", fig.values.layer));
            if (!series.length) return {empty: whyNoRuns(study, "probes during training")};
            linePlot(host, fig, {
                label: "Largest residual value over training steps",
                series,
                x: {label: "step"},
                y: {
                    label: "max |h|",
                    log: fig.values.log,
                    zero: !fig.values.log,
                    format: (v) => significant(v, 3),
                },
            });
            return {legend: armLegend(arms, series), csv: seriesCsv(series, "step", "max |h|")};
        },
    });
}

function valueNorms(study) {
    return layerFigure(study, {
        id: "fig-value-norm",
        title: "Value norm of the first token against the others",
        y: "norm of v₀ ÷ mean norm of others",
        format: (v) => significant(v, 3),
        caption:
            "L2 norm of the value vector at position 0 over the mean of other positions, averaged " +
            "over KV heads. A sink that writes nothing has small values: well below 1.",
        pick: (layer) =>
            mean(
                list(layer, "value_norm", "token_0").map((v, i) =>
                    isNumber(v) && list(layer, "value_norm", "others")[i] > 0
                        ? v / layer.value_norm.others[i]
                        : null,
                ),
            ),
        marks: () => [{y: 1, label: "equal"}],
    });
}

function massiveNote(study) {
    const totals = study.arms
        .map((arm) => ({arm, n: largest(arm.runs.map((run) => number(run.raw, "inspect", "massive_total")))}))
        .filter((t) => t.n !== null);
    if (!totals.length) return null;
    const some = totals.filter((t) => t.n > 0);
    return el(
        "p",
        {class: "note"},
        some.length
            ? "Massive activations (most in one run): " +
                  some.map((t) => plain(t.arm.name, 40) + " " + count(t.n)).join(", ") +
                  "."
            : "No run has a massive activation.",
    );
}
