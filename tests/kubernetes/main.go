// Decodes Kubernetes manifests from standard input into the types of their API, and rejects fields that these do not have.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"

	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

var kinds = map[string]func() any{
	"apps/v1 Deployment":                     func() any { return new(apps.Deployment) },
	"autoscaling/v2 HorizontalPodAutoscaler": func() any { return new(autoscaling.HorizontalPodAutoscaler) },
	"batch/v1 Job":                           func() any { return new(batch.Job) },
	"networking.k8s.io/v1 Ingress":           func() any { return new(networking.Ingress) },
	"policy/v1 PodDisruptionBudget":          func() any { return new(policy.PodDisruptionBudget) },
	"v1 ConfigMap":                           func() any { return new(core.ConfigMap) },
	"v1 Secret":                              func() any { return new(core.Secret) },
	"v1 Service":                             func() any { return new(core.Service) },
	"v1 ServiceAccount":                      func() any { return new(core.ServiceAccount) },
}

func check(document []byte) error {
	var kind meta.TypeMeta
	if err := yaml.Unmarshal(document, &kind); err != nil {
		return err
	}
	name := kind.APIVersion + " " + kind.Kind
	make, known := kinds[name]
	if !known {
		return fmt.Errorf("%s: is no known kind", name)
	}
	object := make()
	if err := yaml.UnmarshalStrict(document, object); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	named, is := object.(meta.Object)
	if !is || named.GetName() == "" {
		return fmt.Errorf("%s: it has no name", name)
	}
	fmt.Println(name, named.GetName())
	return nil
}

func main() {
	text, err := io.ReadAll(os.Stdin)
	failed := err != nil
	for _, document := range bytes.Split(append([]byte("\n"), text...), []byte("\n---")) {
		var content any
		if yaml.Unmarshal(document, &content) == nil && content == nil {
			continue
		}
		if err := check(document); err != nil {
			fmt.Fprintln(os.Stderr, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}
