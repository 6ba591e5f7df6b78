// Command objects says what Kubernetes and Istio would refuse of the objects on its standard input:
// one object or a List, as JSON. It decodes as the API server does where fields are validated
// strictly, and then runs the validation of Kubernetes itself and of Istio's webhook.
//
// It prints a line for each refusal or warning, and "done" at the end. The exit status is 1 when
// the input is no object that it knows.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	networking "istio.io/api/networking/v1alpha3"
	"istio.io/istio/pkg/config"
	istio "istio.io/istio/pkg/config/validation"
	"istio.io/istio/pkg/util/protomarshal"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/discovery"
	discoveryv1 "k8s.io/kubernetes/pkg/apis/discovery/v1"
	"k8s.io/kubernetes/pkg/apis/discovery/validation"
	strict "sigs.k8s.io/json"
)

func main() {
	input, err := io.ReadAll(os.Stdin)
	if err == nil {
		err = check(input)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("done")
}

func check(input []byte) error {
	var head struct {
		metav1.TypeMeta
		Items []json.RawMessage
	}
	if err := json.Unmarshal(input, &head); err != nil {
		return err
	}
	switch kind := head.APIVersion + " " + head.Kind; kind {
	case "v1 List":
		for _, item := range head.Items {
			if err := check(item); err != nil {
				return err
			}
		}
	case "discovery.k8s.io/v1 EndpointSlice":
		refuse(slice(input))
	case "networking.istio.io/v1 DestinationRule":
		refuse(rule(input))
	default:
		return fmt.Errorf("expected a List, an EndpointSlice or a DestinationRule: %s", kind)
	}
	return nil
}

func refuse(reasons []error) {
	for _, reason := range reasons {
		if reason != nil {
			fmt.Printf("%q\n", reason.Error())
		}
	}
}

func slice(input []byte) []error {
	scheme := runtime.NewScheme()
	if err := errors.Join(discovery.AddToScheme(scheme), discoveryv1.AddToScheme(scheme)); err != nil {
		return []error{err}
	}
	codecs := serializer.NewCodecFactory(scheme, serializer.EnableStrict)
	// To what the server itself works with, defaults included.
	object, err := runtime.Decode(codecs.UniversalDecoder(discovery.SchemeGroupVersion), input)
	if err != nil {
		return []error{err}
	}
	return all(validation.ValidateEndpointSliceCreate(object.(*discovery.EndpointSlice)))
}

func rule(input []byte) []error {
	var object struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              json.RawMessage `json:"spec"`
	}
	unknown, err := strict.UnmarshalStrict(input, &object)
	spec := &networking.DestinationRule{}
	if reasons := append(unknown, err, protomarshal.ApplyJSONStrict(string(object.Spec), spec)); errors.Join(reasons...) != nil {
		return reasons
	}
	names := apivalidation.ValidateObjectMeta(
		&object.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	meta := config.Meta{Name: object.Name, Namespace: object.Namespace}
	warning, err := istio.ValidateDestinationRule(config.Config{Meta: meta, Spec: spec})
	return append(all(names), warning, err)
}

func all(list field.ErrorList) []error {
	var reasons []error
	for _, reason := range list {
		reasons = append(reasons, reason)
	}
	return reasons
}
