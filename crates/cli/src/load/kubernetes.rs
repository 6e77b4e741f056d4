//! `--print kubernetes`: an Indexed Job whose pods are generators.

use super::LoadArguments;

/// Options that do not belong into the manifest, and whether they have a value.
const LEFT_OUT: [(&str, bool); 5] = [
    ("--print", true),
    ("--generators", true),
    ("--image", true),
    ("--quiet", false),
    ("-q", false),
];

/// Returns the manifest of a Job with `count` pods that run this command line. `words` is the command line after `load`.
///
/// # Errors
/// The pods would lack a file of this machine.
pub(super) fn job(
    arguments: &LoadArguments,
    count: u32,
    words: &[String],
) -> Result<String, String> {
    let machines = &arguments.machines;
    let (head, command) = match machines.meeting()? {
        Some(url) => (
            format!("# Then run here: dunlin load URL… --from {url} --generators {count}\n"),
            vec!["load".to_owned(), "--join".to_owned(), escape(url)],
        ),
        None => {
            (COLLECT.replace("{last}", &(count - 1).to_string()), segment(arguments, count, words)?)
        }
    };
    let command: Vec<String> =
        command.iter().map(|word| format!("            - {}\n", quote(word))).collect();
    Ok(MANIFEST
        .replace("{head}", &head)
        .replace("{count}", &count.to_string())
        .replace("{image}", &quote(&machines.image))
        .replace("{cpu}", &arguments.extent.threads.to_string())
        .replace("{args}", &command.concat()))
}

/// Returns the command of a pod that runs its segment.
fn segment(arguments: &LoadArguments, count: u32, words: &[String]) -> Result<Vec<String>, String> {
    if !arguments.machines.from.is_empty() {
        return Err("--print and --from with hosts contradict each other".to_owned());
    }
    let files = [
        ("--urls-file", arguments.urls_file.is_some()),
        ("--replay", arguments.model.replay.is_some()),
        ("--body", arguments.request.body.is_some()),
        ("--verify=DIR", matches!(arguments.check.verify, Some(Some(_)))),
    ];
    if let Some((option, _)) = files.iter().find(|(_, used)| *used) {
        return Err(format!(
            "{option} names a file of this machine, which pods do not have; with --from nats://…, they receive it"
        ));
    }
    let mut command = vec!["load".to_owned()];
    command.extend(kept(words).map(|word| escape(word)));
    command.push("--segment".to_owned());
    command.push(format!("$(JOB_COMPLETION_INDEX)/{count}"));
    command.extend(["--quiet", "--json", "-"].map(str::to_owned));
    Ok(command)
}

/// Returns the words without those options that are left out.
fn kept(words: &[String]) -> impl Iterator<Item = &String> {
    let mut is_value = false;
    words.iter().filter(move |word| {
        if std::mem::take(&mut is_value) {
            return false;
        }
        let found = LEFT_OUT.iter().find(|(option, _)| {
            word.strip_prefix(option).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        });
        is_value =
            found.is_some_and(|(option, has_value)| *has_value && word.len() == option.len());
        found.is_none()
    })
}

/// Text in which Kubernetes does not replace names of variables.
fn escape(word: &str) -> String {
    word.replace("$(", "$$(")
}

/// Returns a string of YAML: those of JSON are.
fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The commands that collect the results of segments.
const COLLECT: &str = "\
# Then collect the results and merge them:
#   kubectl wait --for=condition=complete --timeout=1h job/dunlin-load
#   for i in $(seq 0 {last}); do
#     kubectl logs -l batch.kubernetes.io/job-name=dunlin-load,batch.kubernetes.io/job-completion-index=$i \\
#       --tail=-1 >$i.json
#   done
#   dunlin load --merge [0-9]*.json
";

const MANIFEST: &str = "\
{head}apiVersion: batch/v1
kind: Job
metadata:
  name: dunlin-load
  labels:
    app.kubernetes.io/name: dunlin-load
spec:
  completionMode: Indexed
  completions: {count}
  parallelism: {count}
  # A part of the load that is sent again would not be concurrent with the others.
  backoffLimit: 0
  template:
    metadata:
      labels:
        app.kubernetes.io/name: dunlin-load
    spec:
      restartPolicy: Never
      automountServiceAccountToken: false
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              app.kubernetes.io/name: dunlin-load
      containers:
        - name: load
          image: {image}
          args:
{args}          env:
            - name: JOB_COMPLETION_INDEX
              valueFrom:
                fieldRef:
                  fieldPath: metadata.annotations['batch.kubernetes.io/job-completion-index']
          resources:
            requests:
              cpu: \"{cpu}\"
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            runAsNonRoot: true
            capabilities:
              drop: [ALL]
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_manifest_are_not_options_of_its_pods() {
        let words = "http://a/ --print kubernetes -c 9 --generators=3 --image x:1 -q -H a:b";
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let left: Vec<&str> = kept(&words).map(String::as_str).collect();
        assert_eq!(left, ["http://a/", "-c", "9", "-H", "a:b"]);
        assert_eq!(quote("a\"b: #"), r#""a\"b: #""#);
        assert_eq!(escape("$(HOME) $x"), "$$(HOME) $x");
    }
}
