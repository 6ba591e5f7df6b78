package brownout

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// line of the table of cases: text, or a beginning, something repeated, and an end.
type line string

func (l *line) UnmarshalJSON(data []byte) error {
	var parts struct {
		Begin, Fill, End string
		Times            int
	}
	if json.Unmarshal(data, (*string)(l)) == nil {
		return nil
	}
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	*l = line(parts.Begin + strings.Repeat(parts.Fill, parts.Times) + parts.End)
	return nil
}

type tableCase struct {
	Name     string
	Lines    []line
	Parts    map[string]bool
	Others   bool
	PassesOn *line `json:"passes_on"`
}

func (c tableCase) lines() []string {
	var texts []string
	for _, text := range c.Lines {
		texts = append(texts, string(text))
	}
	return texts
}

// table is the one that every implementation reads.
func table(t testing.TB) []tableCase {
	data, err := os.ReadFile(filepath.Join("..", "conformance", "headers.json"))
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		ValueBytesMax int `json:"value_bytes_max"`
		Cases         []tableCase
	}
	if err := json.Unmarshal(data, &table); err != nil {
		t.Fatal(err)
	}
	if len(table.Cases) < 100 || table.ValueBytesMax != valueBytesMax {
		t.Fatalf("%d cases, values of up to %d bytes", len(table.Cases), table.ValueBytesMax)
	}
	return table.Cases
}

func TestTheTable(t *testing.T) {
	for _, c := range table(t) {
		t.Run(c.Name, func(t *testing.T) {
			decision := Read(c.lines())
			for part, expected := range c.Parts {
				if decision.Allows(part) != expected {
					t.Errorf("%s: %t", part, !expected)
				}
			}
			for _, part := range []string{"", "not-in-the-table"} {
				if decision.Allows(part) != c.Others {
					t.Errorf("%q: %t", part, !c.Others)
				}
			}
			expected := ""
			if c.PassesOn != nil {
				expected = string(*c.PassesOn)
			}
			if decision.String() != expected {
				t.Errorf("passes on %q", decision.String())
			}
		})
	}
}

func TestSpacesAroundDoNotCount(t *testing.T) {
	if text := Read([]string{"  ?0;comments  "}).String(); text != "?0;comments" {
		t.Errorf("%q", text)
	}
	if !Read([]string{"\t?0"}).Allows("") {
		t.Error("a tab is no space")
	}
}

func TestTheTimeIsLinear(t *testing.T) {
	begin := time.Now()
	for _, prefix := range []string{"?0;a=", `?0;a="`, `?0;a=%"`, "?0;a=:", "?0;", "?0"} {
		for _, fill := range []string{";a", `"`, `\\`, "1", "a", ":", "%41", " ", "@", "?"} {
			Read([]string{(prefix + strings.Repeat(fill, 4096))[:4096]})
		}
	}
	if passed := time.Since(begin); passed > time.Second {
		t.Errorf("%v", passed)
	}
}

// The grammar a second time, as one expression: the obvious model the scanner is compared with.
var (
	key      = `[a-z*][a-z0-9_.*-]*`
	bareItem = `(?:\?[01]|-?[0-9]{1,12}\.[0-9]{1,3}|-?[0-9]{1,15}|@-?[0-9]{1,15}` +
		`|"(?:[ !#-\[\]-~]|\\["\\])*"|%"(?:[ !#$&-~]|%[0-9a-f]{2})*"` +
		"|[A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]*|:[A-Za-z0-9+/]*={0,2}:)"
	parameter = regexp.MustCompile(`; *(` + key + `)(?:=(` + bareItem + `))?`)
	whole     = regexp.MustCompile(`\A *\?[01](?:` + parameter.String() + `)* *\z`)
)

func model(value string) (decision Decision, decided bool) {
	if len(value) > 4096 || !whole.MatchString(value) {
		return full, false
	}
	value = strings.Trim(value, " ")
	decision = Decision{item: value[1] == '1', parts: map[string]bool{}, value: value}
	for _, found := range parameter.FindAllStringSubmatch(value, -1) {
		name, bare := found[1], found[2]
		delete(decision.parts, name)
		switch {
		case bare == "" || bare == "?1":
			decision.parts[name] = true
		case bare == "?0":
			decision.parts[name] = false
		case bare[0] == '%' && !utf8.ValidString(unescaped(bare)):
			return full, false
		}
	}
	return decision, true
}

var escape = regexp.MustCompile(`%[0-9a-f]{2}`)

func unescaped(displayString string) string {
	return escape.ReplaceAllStringFunc(displayString, func(escape string) string {
		digits := strings.NewReplacer("%", "")
		value := strings.Index("0123456789abcdef", digits.Replace(escape)[:1])*16 +
			strings.Index("0123456789abcdef", escape[2:])
		return string([]byte{byte(value)})
	})
}

func FuzzRead(f *testing.F) {
	for _, c := range table(f) {
		for _, text := range c.lines() {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, value string) {
		decision := Read([]string{value})
		expected, decided := model(value)
		if decision.value != expected.value || decision.item != expected.item {
			t.Fatalf("%q: %+v, expected %+v", value, decision, expected)
		}
		if len(decision.parts) != len(expected.parts) {
			t.Fatalf("%q: %+v, expected %+v", value, decision, expected)
		}
		for part, allowed := range expected.parts {
			if decision.Allows(part) != allowed {
				t.Fatalf("%q: %q is %t", value, part, !allowed)
			}
		}
		if !decided && !decision.Allows("comments") {
			t.Fatalf("%q is malformed and refuses", value)
		}
		if again := Read([]string{decision.String()}); decided && again.value != decision.value {
			t.Fatalf("%q is passed on as %q and read as %+v", value, decision.String(), again)
		}
		if !Read([]string{value, value}).Allows("comments") {
			t.Fatalf("%q repeated refuses", value)
		}
	})
}
