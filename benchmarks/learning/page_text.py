"""Text of docs/learning.md, around its tables."""

#: What differs between engines and nets although the settings are equal.
DIFFERS = (
    "Initial weights. Under PPO, Stable-Baselines3 initialises its layers orthogonally, or in the"
    " same way as PyTorch where the zoo sets `ortho_init: false`; rlcatalog uses `normc`. Under"
    " SAC, TD3 and DQN, both use PyTorch's initialisation.",
    "Value loss. Stable-Baselines3 weights the mean squared error, and rlcatalog-ppo half of it,"
    " so rlcatalog-ppo gets twice the weight. In the easy tasks, both weights are 0.5, so"
    " rlcatalog-ppo's value loss counts half.",
    'Defaults. rlcatalog\'s nets are trained with `image_layout="hwc"` and'
    ' `scale_integers=False` and, except under RLlib, with `action_bounds="clip"`. These were'
    " the defaults when the first of the results were kept, and Stable-Baselines3's own nets do"
    " the same.",
    "Seeds. When the results were kept, equal seeds gave rlcatalog-ppo and Stable-Baselines3 the"
    " same environments and first weights. Since then, rlcatalog-ppo derives its seeds with"
    " `SeedSequence`, so runs that are added now differ from the start.",
    "Normalisation. Stable-Baselines3 uses `VecNormalize`. rlcatalog-ppo uses `MeanStdFilter` for"
    " observations and `reward_scale` for rewards. Both clip at 10, and all evaluations use the"
    " statistics from training.",
    "MiniGrid. rlcatalog's nets see the image and scale it by 1/255. Stable-Baselines3's own net"
    " receives it as 147 numbers, because its convolutions do not fit into 7 x 7. The mission is"
    " omitted for all engines: Stable-Baselines3 does not support text, and the sentence never"
    " changes.",
    "Masks. MaskablePPO requests them from the environment. rlcatalog-ppo finds them in the"
    " observation.",
    "Memory. RepeatPreviousEasy compares nets whose sizes differ by at most 1%. rlcatalog's LSTM"
    " follows a dense layer; sb3-contrib's LSTM reads the observation and is followed by a dense"
    " layer. rlcatalog-ppo trains on sequences as long as a rollout (`max_seq_len=32`), like"
    " sb3-contrib. With its default of 20, the LSTM reached only 0.90 to 0.99 (seeds 0 to 4).",
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

This page compares engines with equal hyperparameters, steps and seeds. Stable-Baselines3 and Ray RLlib train both
their own network and the one that rlcatalog chooses. rlcatalog-ppo trains the network that
rlcatalog chooses, using PPO, and is compared with Stable-Baselines3's own network.

Each trained policy plays 50 episodes. With PPO, it samples its actions as in training. With SAC, TD3 and DQN, it
takes the most likely action. Tables show interquartile means over seeds with 95% bootstrap intervals. Differences are
paired by seed and given as a percentage of the task's range, from random actions to the best return. The claim to be
tested is that the lower end is at least {mark}%. An interval that contains 0 and reaches below {mark}% is undecided;
the table estimates the number of seeds that would decide it. With fewer than {fewest} seeds, no claim is made.

The probability of improvement is defined as in Agarwal et al. (2021): it is the share of pairs of runs, whatever their
seeds, in which rlcatalog has the higher return. A tie counts as half. Costs are given in CPU seconds per 1,000
training steps with one thread, for the baseline and for rlcatalog.

## Tasks with published settings

{published_differences}

| task | engine | steps | seeds | baseline | rlcatalog | difference | better | cost |
|---|---|---|---|---|---|---|---|---|
{published}

Conclusions:

{conclusions}

The curves show the mean return of the last 100 training episodes. Lines are interquartile means over seeds; bands
are their 95% intervals:

{published_curves}

### Published results for the same tasks

Here the policy takes the most likely action, as in the published evaluations. Environment versions and step counts are
the same unless the last column names different ones. No published result was found for RepeatPreviousEasy after 200,000
steps.

| task | steps | here | published | by |
|---|---|---|---|---|
{figures}

### Settings and sources

`value` is the weight of the mean squared value error. `decay` lists the settings that decrease linearly to 0.
`scaled` lists the quantities that are divided by their running standard deviation. `own` contains the arguments of
Stable-Baselines3's policy, and `model` or `extractor` contains rlcatalog's model config.

{settings}
Even with equal settings, these differences remain:

{differs}

## The zoo

rlcatalog-ppo contains these policies, exported as ONNX files. For each task, it is the policy whose most likely actions
had the highest return above. Play one from the root of a clone with:

```console
$ pip install '.[actor]' ./plugins/runs ./plugins/ppo ./plugins/cli
$ rlcatalog evaluate zoo:Hopper-v5
```

Playing needs no framework; install the environment's own package. Beside each file, a JSON file records the run that
trained the policy. The returns are means over {zoo_episodes} episodes with 95% intervals.

| policy | most likely actions | sampled actions | training steps | seed | kB |
|---|---|---|---|---|---|
{zoo}

## Easy tasks

These settings do not come from published sources and are the same for all engines.

{easy_differences}

| engine | task | steps | seeds | baseline | rlcatalog | difference | better |
|---|---|---|---|---|---|---|---|
{easy}

{easy_curves}

## Continue the comparison

```console
$ make compare                               # train the missing runs, and write this page
$ make compare COMPARE_ARGS=--list           # list the missing runs
$ make compare COMPARE_ARGS=--required       # omit the runs that are scheduled last
$ make compare COMPARE_ARGS=--unclaimed      # add the tasks that make no claim
$ make compare COMPARE_ARGS=--report         # only write this page
$ make compare COMPARE_ARGS='--try 4096'     # test whether each kind of run works here
```

Each finished run is one line of `benchmarks/learning/results.jsonl`, with its settings, seed, versions and CPU time.
You can stop the command at any time: finished runs are kept, and the same command continues. An interrupted run starts
again from the beginning; because Stable-Baselines3 cannot resume exactly, no engine does. Commands that run at the
same time never train the same run. The command runs at the lowest priority and prints how to pause it. Policies trained
with rlcatalog-ppo are saved in `runs/learning`, and a better policy than the one in the zoo replaces it.

Versions in the records:

{versions}
"""
