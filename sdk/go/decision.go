package brownout

import (
	"strings"
	"unicode/utf8"
)

// valueBytesMax is the longest value that is read.
const valueBytesMax = 4096

// Decision tells which optional parts are computed: a Boolean item with parameters, RFC 9651 (and
// RFC 8941 before it). A part is decided by the last parameter of its name; if there is none, or
// it is no Boolean, by the item.
type Decision struct {
	item  bool
	parts map[string]bool
	value string
}

var full = Decision{item: true}

// Read reads the lines of the header Brownout-Optional. None, several, or one that is malformed
// or over 4096 bytes: everything is computed, since a decision half understood is none.
func Read(lines []string) Decision {
	if len(lines) != 1 || len(lines[0]) > valueBytesMax {
		return full
	}
	value := strings.Trim(lines[0], " ")
	scanner := scanner{rest: value}
	item, isBoolean := scanner.boolean()
	if !isBoolean {
		return full
	}
	decision := Decision{item: item, value: value}
	for scanner.rest != "" {
		if !scanner.parameter(&decision) {
			return full
		}
	}
	return decision
}

// Allows tells whether this part is computed; with the empty name, the page's only one.
func (d Decision) Allows(part string) bool {
	if allowed, isNamed := d.parts[part]; isNamed {
		return allowed
	}
	return d.item
}

// String is the header the decision was read from; empty if there was none, or none that could be
// read.
func (d Decision) String() string {
	return d.value
}

// scanner takes what it knows from the beginning of the rest, or says false.
type scanner struct{ rest string }

// parameter takes one, the last of a name wins: `;`, spaces, a key, and perhaps `=` and a value.
func (s *scanner) parameter(decision *Decision) bool {
	if !s.take(';') {
		return false
	}
	s.rest = strings.TrimLeft(s.rest, " ")
	name, isKey := s.letters(beginsKey, continuesKey)
	if !isKey {
		return false
	}
	allowed, decides := true, true
	if s.take('=') {
		if allowed, decides = s.boolean(); !decides && !s.otherBareItem() {
			return false
		}
	}
	if decision.parts == nil {
		decision.parts = make(map[string]bool)
	}
	delete(decision.parts, name)
	if decides {
		decision.parts[name] = allowed
	}
	return true
}

func (s *scanner) boolean() (value, isBoolean bool) {
	if !strings.HasPrefix(s.rest, "?0") && !strings.HasPrefix(s.rest, "?1") {
		return false, false
	}
	value = s.rest[1] == '1'
	s.rest = s.rest[2:]
	return value, true
}

// otherBareItem takes a value that is well-formed and decides nothing: RFC 9651, section 3.3.
func (s *scanner) otherBareItem() bool {
	switch {
	case s.take('"'):
		return s.stringEnd()
	case s.take(':'):
		s.letters(isBase64, isBase64)
		return s.take(':') || s.take('=') && (s.take(':') || s.take('=') && s.take(':'))
	case s.take('@'):
		return s.number(0)
	case s.take('%'):
		return s.take('"') && s.displayStringEnd()
	case s.rest != "" && beginsToken(s.rest[0]):
		s.letters(beginsToken, continuesToken)
		return true
	default:
		return s.number(3)
	}
}

func (s *scanner) stringEnd() bool {
	for s.rest != "" {
		letter := s.next()
		switch {
		case letter == '"':
			return true
		case letter == '\\':
			if !s.take('"') && !s.take('\\') {
				return false
			}
		case !isPrintable(letter):
			return false
		}
	}
	return false
}

func (s *scanner) displayStringEnd() bool {
	var text []byte
	for s.rest != "" {
		letter := s.next()
		switch {
		case letter == '"':
			return utf8.Valid(text)
		case letter == '%':
			if len(s.rest) < 2 || !isHexadecimal(s.rest[0]) || !isHexadecimal(s.rest[1]) {
				return false
			}
			text = append(text, hexadecimal(s.next())<<4|hexadecimal(s.next()))
		case isPrintable(letter):
			text = append(text, letter)
		default:
			return false
		}
	}
	return false
}

// number takes an Integer, or a Decimal with up to that many fraction digits.
func (s *scanner) number(fractionDigitsMax int) bool {
	s.take('-')
	integer, _ := s.letters(isDigit, isDigit)
	if fractionDigitsMax > 0 && s.take('.') {
		fraction, _ := s.letters(isDigit, isDigit)
		return within(integer, 12) && within(fraction, fractionDigitsMax)
	}
	return within(integer, 15)
}

func within(digits string, digitsMax int) bool {
	return len(digits) >= 1 && len(digits) <= digitsMax
}

// letters takes as many as there are.
func (s *scanner) letters(begins, continues func(byte) bool) (text string, some bool) {
	if s.rest == "" || !begins(s.rest[0]) {
		return "", false
	}
	end := 1
	for end < len(s.rest) && continues(s.rest[end]) {
		end++
	}
	text, s.rest = s.rest[:end], s.rest[end:]
	return text, true
}

func (s *scanner) take(letter byte) bool {
	if s.rest == "" || s.rest[0] != letter {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

func (s *scanner) next() byte {
	letter := s.rest[0]
	s.rest = s.rest[1:]
	return letter
}

func beginsKey(letter byte) bool {
	return isLower(letter) || letter == '*'
}

func continuesKey(letter byte) bool {
	return beginsKey(letter) || isDigit(letter) || strings.IndexByte("_-.", letter) >= 0
}

func beginsToken(letter byte) bool {
	return isLower(letter) || isUpper(letter) || letter == '*'
}

func continuesToken(letter byte) bool {
	return beginsToken(letter) || isDigit(letter) ||
		strings.IndexByte("!#$%&'+-.^_`|~:/", letter) >= 0
}

func isBase64(letter byte) bool {
	return isLower(letter) || isUpper(letter) || isDigit(letter) ||
		strings.IndexByte("+/", letter) >= 0
}

func isHexadecimal(letter byte) bool {
	return isDigit(letter) || letter >= 'a' && letter <= 'f'
}

func hexadecimal(letter byte) byte {
	if isDigit(letter) {
		return letter - '0'
	}
	return letter - 'a' + 10
}

func isLower(letter byte) bool { return letter >= 'a' && letter <= 'z' }

func isUpper(letter byte) bool { return letter >= 'A' && letter <= 'Z' }

func isDigit(letter byte) bool { return letter >= '0' && letter <= '9' }

func isPrintable(letter byte) bool { return letter >= ' ' && letter <= '~' }
