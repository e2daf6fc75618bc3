/* SPDX-License-Identifier: Apache-2.0 */
/* What the models write after the same prompts. */

function samplesSection(study) {
    const seeds = seedOptions(study);
    const box = el("div");
    let seed = seeds.length ? seeds[0].value : null;
    const fill = () => box.replaceChildren(...sampleBlocks(study, seed));
    fill();
    const choice =
        seeds.length > 1
            ? el(
                  "label",
                  {class: "control"},
                  "Seed ",
                  el(
                      "select",
                      {
                          onchange: (event) => {
                              seed = seeds[event.target.selectedIndex].value;
                              fill();
                          },
                      },
                      seeds.map((s) => el("option", null, s.label)),
                  ),
              )
            : null;
    return section(
        "samples",
        "Samples",
        "Text written by each model after the same prompts, as drawn; models of this size write " +
            "nonsense that looks like the training text.",
        choice ? el("div", {class: "controls"}, choice) : null,
        box,
    );
}

function sampleBlocks(study, seed) {
    const runs = study.arms.map((arm) => ({arm, run: arm.runs.find((r) => r.seed === seed) || arm.runs[0]}));
    const prompts = [
        ...new Set(
            runs.flatMap(({run}) =>
                run ? list(run.raw, "samples").map((s) => text(s, "prompt") || "") : [],
            ),
        ),
    ];
    if (!prompts.length)
        return [el("p", {class: "empty"}, "Nothing to show: " + whyNoRuns(study, "samples") + ".")];
    return prompts.map((prompt) =>
        el(
            "div",
            {class: "prompt"},
            el("h3", null, "After ", el("q", null, el("bdi", null, plain(prompt.trim(), 200)))),
            el(
                "div",
                {class: "samples"},
                runs.map(({arm, run}) => sampleCard(arm, run, prompt)),
            ),
        ),
    );
}

function sampleCard(arm, run, prompt) {
    const sample = run && list(run.raw, "samples").find((s) => (text(s, "prompt") || "") === prompt);
    const how = sample
        ? [
              number(sample, "temperature") !== null ? "temperature " + sample.temperature : null,
              number(sample, "seed") !== null ? "sampling seed " + sample.seed : null,
          ]
              .filter(Boolean)
              .join(", ")
        : null;
    return el(
        "article",
        {class: "sample"},
        el("h4", null, swatch({style: arm.style}), el("bdi", null, plain(arm.name, 48))),
        sample
            ? el(
                  "p",
                  {class: "written", tabindex: "0"},
                  el("bdi", null, el("b", null, prompt), typeof sample.text === "string" ? sample.text : ""),
              )
            : el(
                  "p",
                  {class: "empty"},
                  run && !run.ok ? "No sample: the run " + run.status + "." : "No sample.",
              ),
        how ? el("p", {class: "unit"}, how) : null,
    );
}
