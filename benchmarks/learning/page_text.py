"""Text of docs/learning.md, around its tables."""

#: What differs between engines and nets although the settings are equal.
DIFFERS = (
    "Initial weights. Under PPO, Stable-Baselines3 initialises its layers orthogonally, or in the"
    " same way as PyTorch where the zoo sets `ortho_init: false`. rlcatalog's nets start in the"
    " same way, except in the tasks with kept defaults.",
    "Kept defaults. In these tasks, the results are from a time when rlcatalog had other defaults:"
    " {kept}. All of them were trained with `scale_integers=False`, images with"
    ' `image_layout="hwc"`, and, under PPO of Stable-Baselines3 and of rlcatalog,'
    ' `action_bounds="clip"`, `init="normc"`, `memory_first=False` and `lstm_two_biases=False`.',
    "Value loss. Stable-Baselines3 weights the mean squared error, and rlcatalog-ppo half of it,"
    " so rlcatalog-ppo gets twice the weight. In the easy tasks, both weights are 0.5, so"
    " rlcatalog-ppo's value loss counts half.",
    "Seeds. In the tasks with kept defaults, equal seeds gave rlcatalog-ppo and Stable-Baselines3"
    " the same environments and first weights. Since then, rlcatalog-ppo derives its seeds with"
    " `SeedSequence`, so its runs differ from the start.",
    "Normalisation. Stable-Baselines3 uses `VecNormalize`. rlcatalog-ppo uses `MeanStdFilter` for"
    " observations and `reward_scale` for rewards. Both clip at 10, and all evaluations use the"
    " statistics from training.",
    "MiniGrid. rlcatalog's nets see the image and scale it by 1/255. Stable-Baselines3's own net"
    " receives it as 147 numbers, because its convolutions do not fit into 7 x 7. The mission is"
    " omitted for all engines: Stable-Baselines3 does not support text, and the sentence never"
    " changes.",
    "Masks. MaskablePPO requests them from the environment. rlcatalog-ppo finds them in the"
    " observation.",
    "Memory. rlcatalog's LSTM has the layers of sb3-contrib's: it reads the observation, is"
    " followed by a dense layer, and has two biases for each gate. rlcatalog-ppo trains on"
    " sequences as long as a rollout (`max_seq_len=32`), like sb3-contrib. With its default of 20,"
    " an LSTM after a dense layer reached only 0.90 to 0.99 in RepeatPreviousEasy (seeds 0 to 4).",
    "Attention. In RepeatPreviousEasy, it sees the last 32 steps (`attention_memory_inference` and"
    " `attention_memory_training`). This was chosen after runs with the default of 50, where two"
    " of five seeds ended at 0.65 and 0.72. Both were right early in an episode and often wrong at"
    " its end. In the first, the learned scores of the distances 3 and 41 were equal. With"
    " `attention_dim=32`, the sinusoids with periods of 6, 20 and 35 steps nearly repeat after 38"
    " steps.",
    "SAC and TD3. With an rlcatalog trunk, the first layer reads only the observation, and the"
    " action is an input of the second layer. With DQN, both nets have the same layers and start"
    " with the same weights, so the returns are equal.",
)

TEXT = """# Learning under each engine

Do policies learn as well with rlcatalog's networks as with those of other libraries? This page compares them with equal
hyperparameters, steps and seeds. In each comparison there is a *baseline*:

- Stable-Baselines3 and Ray RLlib train a policy with their own network, which is the baseline, and a policy with the
  network that rlcatalog chooses.
- rlcatalog's own PPO trains a policy with the network that rlcatalog chooses. The baseline is the policy that
  Stable-Baselines3 trained with its own network.

After training, each policy plays 50 episodes. With PPO, it samples its actions as in training. With SAC, TD3 and DQN,
it takes the most likely action. The columns of the tables are:

- *baseline* and *rlcatalog*: the interquartile mean of the returns over seeds, with its 95% bootstrap interval.
- *difference*: the return with rlcatalog minus the return of the baseline, paired by seed. It is a percentage of the
  range from the return of random actions to the best return. We claim that rlcatalog is not worse by more than 10% of
  the range, so the lower end of the interval should be at least {mark}%. If the interval contains 0 and reaches below
  {mark}%, the comparison is undecided, and the table estimates how many seeds would decide it. With fewer than
  {fewest} seeds, we claim nothing.
- *better*: the probability of improvement (Agarwal et al. 2021). Each run with rlcatalog is compared with each run of
  the baseline. The column shows how often rlcatalog has the higher return. A tie counts as half.
- *cost*: CPU seconds for 1,000 training steps with one thread, for the baseline and for rlcatalog.

## Tasks with published settings

{published_differences}

| task | engine | steps | seeds | baseline | rlcatalog | difference | better | cost |
|---|---|---|---|---|---|---|---|---|
{published}

HalfCheetah, and most of these tasks under Ray RLlib, take too long on the machines that we have.

Conclusions:

{conclusions}

The learning curves show the mean return of the last 100 training episodes. A line is the interquartile mean over seeds,
and the band around the line is its 95% interval:

{published_curves}

### Published results for the same tasks

This table compares the returns with results that others have published for the same tasks. The policies take the most
likely action, as in the published evaluations. The versions of the environments and the numbers of steps are the same,
unless the last column names different ones. We found no published result for RepeatPreviousEasy after 200,000 steps.

| task | steps | here | published | by |
|---|---|---|---|---|
{figures}

### Settings and sources

The following list shows the settings for each task and where they come from. Most names in the settings are those of
the engines. These names are not:

- `value` is the weight of the mean squared value error.
- `decay` lists the settings that decrease linearly to 0.
- `scaled` lists what is divided by its running standard deviation.
- `own` contains the arguments of Stable-Baselines3's policy.
- `model` or `extractor` contains rlcatalog's model config.

{settings}
Even with equal settings, these differences remain:

{differs}

## Tasks that need one part of rlcatalog

Each of these tasks needs a part that other libraries do not have. The baseline is what you can do without this part, so
that its task, and not its network, differs. The policies take sampled actions.

{parts_about}

{parts_differences}

| task | baseline | steps | seeds | return of the baseline | return of rlcatalog-ppo | difference | better | cost |
|---|---|---|---|---|---|---|---|---|
{parts}

{parts_curves}

## The zoo

The package rlcatalog-ppo contains eight policies that rlcatalog's PPO trained for this page, exported as ONNX files.
Each is the policy of its task that had the highest return with its most likely actions. To see a policy play, run these
commands in the root of a clone:

```console
$ pip install '.[actor]' ./plugins/runs ./plugins/ppo ./plugins/cli
$ rlcatalog evaluate zoo:Workshop-v0
```

You do not need PyTorch or TensorFlow to play, but you have to install the package of the environment. Workshop and
Weeds are part of rlcatalog-ppo. Next to each ONNX file, there is a JSON file which describes the run that trained the
policy. To train the policies of a task again, move its lines out of `benchmarks/learning/results.jsonl`, and name the
task:

```console
$ make compare COMPARE_ARGS='--engine ours --task Workshop'
```

The returns in this table are means over {zoo_episodes} episodes with 95% intervals:

| policy | most likely actions | sampled actions | training steps | seed | kB |
|---|---|---|---|---|---|
{zoo}

In Weeds, sampled actions return more than the most likely ones. If the most likely action is a tool that is slightly
out of reach, the robot does not move, and uses the tool until the episode ends.

## Easy tasks

This section compares the same engines in easier tasks. Their settings do not come from published sources, and are the
same for all engines.

{easy_differences}

| engine | task | steps | seeds | baseline | rlcatalog | difference | better |
|---|---|---|---|---|---|---|---|
{easy}

{easy_curves}

## Continue the comparison

```console
$ make compare                               # train the missing runs, and write this page
$ make compare COMPARE_ARGS=--list           # list the missing runs
$ make compare COMPARE_ARGS=--unclaimed      # add the tasks that make no claim
$ make compare COMPARE_ARGS=--report         # only write this page
$ make compare COMPARE_ARGS='--try 4096'     # test whether each kind of run works here
```

`make compare` writes each finished run as a line into `benchmarks/learning/results.jsonl`, with its settings, seed,
versions and CPU time. You can stop the command at any time. Finished runs are kept, and if you run the command again,
it continues with the missing ones. A run that was interrupted starts again from the beginning. (Stable-Baselines3
cannot resume a run exactly, so the other engines do not resume either.)

You can run the command several times at once, because two commands never train the same run. It runs at the lowest
priority and prints how to pause it. Policies that were trained with rlcatalog's PPO are saved in `runs/learning`. If
such a policy is better than the one in the zoo, it replaces it.

Versions in the records:

{versions}
"""
