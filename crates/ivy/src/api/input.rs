//! Inputs as clients write them: a string, a list of strings, token ids, lists of token ids.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use tulip_proto::v1::{self, input};

/// A text.
pub(crate) fn text(text: impl Into<String>) -> v1::Input {
    v1::Input {
        content: Some(input::Content::Text(text.into())),
        ..v1::Input::default()
    }
}

/// A text's own tokens: special tokens are put around them as around a text.
pub(crate) fn token_ids(token_ids: &[u32]) -> v1::Input {
    let packed: Vec<u8> = token_ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    v1::Input {
        content: Some(input::Content::TokenIds(packed.into())),
        ..v1::Input::default()
    }
}

/// `"a"`, `["a", "b"]`, `[1, 2]` (one input) or `[[1, 2], [3]]`; lists may mix texts, objects with
/// a `text`, and lists of ids.
#[derive(Debug, Default)]
pub(crate) struct Inputs(pub(crate) Vec<v1::Input>);

/// `"a"` or `["a", "b"]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    pub(crate) fn into_vec(self) -> Vec<String> {
        match self {
            Self::One(one) => vec![one],
            Self::Many(many) => many,
        }
    }
}

/// One entry of [`Inputs`].
enum Entry {
    Text(String),
    Id(u32),
    Ids(Vec<u32>),
}

struct EntryVisitor;

impl<'de> Visitor<'de> for EntryVisitor {
    type Value = Entry;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string, a token id or a list of token ids")
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Entry, E> {
        Ok(Entry::Text(value.to_owned()))
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<Entry, E> {
        Ok(Entry::Text(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Entry, E> {
        u32::try_from(value)
            .map(Entry::Id)
            .map_err(|_| E::invalid_value(de::Unexpected::Unsigned(value), &"a token id"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Entry, A::Error> {
        let mut ids = Vec::with_capacity(sequence.size_hint().unwrap_or(0).min(1 << 16));
        while let Some(id) = sequence.next_element()? {
            ids.push(id);
        }
        Ok(Entry::Ids(ids))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entry, A::Error> {
        let mut text = None;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "text" => text = Some(map.next_value()?),
                "image" => return Err(de::Error::custom("images are not supported")),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        text.map(Entry::Text)
            .ok_or_else(|| de::Error::missing_field("text"))
    }
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EntryVisitor)
    }
}

struct InputsVisitor;

impl<'de> Visitor<'de> for InputsVisitor {
    type Value = Inputs;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string, a list of strings, token ids or lists of token ids")
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Inputs, E> {
        Ok(Inputs(vec![text(value)]))
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<Inputs, E> {
        Ok(Inputs(vec![text(value)]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Inputs, A::Error> {
        let mut inputs = Vec::new();
        let mut ids = Vec::new();
        while let Some(entry) = sequence.next_element()? {
            let is_id = matches!(entry, Entry::Id(_));
            match entry {
                Entry::Text(value) => inputs.push(text(value)),
                Entry::Ids(ids) => inputs.push(token_ids(&ids)),
                Entry::Id(id) => ids.push(id),
            }
            if !ids.is_empty() && !inputs.is_empty() {
                let index = ids.len() + inputs.len() - 1;
                let what = if is_id { "a token id" } else { "not one" };
                return Err(de::Error::custom(format!(
                    "a list of token ids is one input and cannot hold texts or lists: \
                     entry {index} is {what}"
                )));
            }
        }
        if !ids.is_empty() {
            inputs.push(token_ids(&ids));
        }
        Ok(Inputs(inputs))
    }
}

impl<'de> Deserialize<'de> for Inputs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(InputsVisitor)
    }
}

struct OneOrManyVisitor;

impl<'de> Visitor<'de> for OneOrManyVisitor {
    type Value = OneOrMany;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string or a list of strings")
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<OneOrMany, E> {
        Ok(OneOrMany::One(value.to_owned()))
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<OneOrMany, E> {
        Ok(OneOrMany::One(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<OneOrMany, A::Error> {
        let mut many = Vec::new();
        while let Some(one) = sequence.next_element()? {
            many.push(one);
        }
        Ok(OneOrMany::Many(many))
    }
}

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrManyVisitor)
    }
}

/// A query or a document of the rerank dialects: a text, or an object that holds one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Document {
    /// The text itself.
    Text(String),
    /// `{"text": …}`, or fields of which Cohere's `rank_fields` names some.
    Object(Map<String, Value>),
}

struct DocumentVisitor;

impl<'de> Visitor<'de> for DocumentVisitor {
    type Value = Document;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string or an object")
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Document, E> {
        Ok(Document::Text(value.to_owned()))
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<Document, E> {
        Ok(Document::Text(value))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Document, A::Error> {
        let object = Map::deserialize(de::value::MapAccessDeserializer::new(map));
        object.map(Document::Object)
    }
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DocumentVisitor)
    }
}

impl Document {
    /// What the model reads: the text, or the fields named, as Cohere advises in lines of YAML.
    pub(crate) fn read(&self, rank_fields: &[String]) -> Result<String, String> {
        let object = match self {
            Self::Text(text) => return Ok(text.clone()),
            Self::Object(object) => object,
        };
        if rank_fields.is_empty() {
            return match object.get("text") {
                Some(Value::String(text)) => Ok(text.clone()),
                Some(_) => Err("text must be a string".into()),
                None if object.contains_key("image") => Err("images are not supported".into()),
                None => Err("has no text".into()),
            };
        }
        if let [field] = rank_fields
            && let Some(Value::String(text)) = object.get(field)
        {
            return Ok(text.clone());
        }
        let named = rank_fields.iter();
        let lines = named.filter_map(|field| Some((field, object.get(field)?)));
        let lines: Vec<String> = lines
            .map(|(field, value)| match value {
                Value::String(text) => format!("{field}: {text}"),
                other => format!("{field}: {other}"),
            })
            .collect();
        if lines.is_empty() {
            return Err(format!("has none of the rank_fields {rank_fields:?}"));
        }
        Ok(lines.join("\n"))
    }

    /// As it goes back to the client.
    pub(crate) fn into_object(self) -> Map<String, Value> {
        match self {
            Self::Text(text) => Map::from_iter([("text".to_owned(), Value::String(text))]),
            Self::Object(object) => object,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_may_be_objects() {
        let read = |json: &str, fields: &[&str]| {
            let fields: Vec<String> = fields.iter().map(|&field| field.into()).collect();
            serde_json::from_str::<Document>(json)
                .unwrap()
                .read(&fields)
        };
        let object = r#"{"text": "b", "title": "a", "year": 7}"#;
        assert_eq!(read(r#""a""#, &["title"]), Ok("a".into()));
        assert_eq!(read(object, &[]), Ok("b".into()));
        assert_eq!(read(object, &["title"]), Ok("a".into()));
        assert_eq!(
            read(object, &["title", "year"]),
            Ok("title: a\nyear: 7".into())
        );
        assert_eq!(
            read(object, &["body"]),
            Err("has none of the rank_fields [\"body\"]".into())
        );
        assert_eq!(
            read(r#"{"image": "x"}"#, &[]),
            Err("images are not supported".into())
        );
    }

    fn inputs(json: &str) -> Result<Vec<v1::Input>, String> {
        serde_json::from_str::<Inputs>(json)
            .map(|inputs| inputs.0)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn every_form_of_input() {
        assert_eq!(inputs(r#""a\n""#), Ok(vec![text("a\n")]));
        assert_eq!(inputs(r#"["a", ""]"#), Ok(vec![text("a"), text("")]));
        assert_eq!(inputs("[1, 258]"), Ok(vec![token_ids(&[1, 258])]));
        assert_eq!(
            inputs(r#"[[1], "a", []]"#),
            Ok(vec![token_ids(&[1]), text("a"), token_ids(&[])])
        );
        assert_eq!(inputs(r#"[{"text": "a", "id": 3}]"#), Ok(vec![text("a")]));
        assert_eq!(inputs("[]"), Ok(vec![]));
    }

    #[test]
    fn what_is_none_is_refused() {
        for json in [
            "5",
            "null",
            "{}",
            "[null]",
            "[{\"image\": \"x\"}]",
            "[1, \"a\"]",
            "[\"a\", 1]",
            "[-1]",
            "[4294967296]",
            "[[1.5]]",
        ] {
            assert!(inputs(json).is_err(), "{json}");
        }
    }
}
