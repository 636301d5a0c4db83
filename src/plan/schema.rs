//! The JSON Schema of the pipeline file, from the same tables that the checker walks.

use super::sections;
use super::tables::Tables;
use super::yaml::{Node, Shape, parse};
use super::{global, measure, scalar};
use crate::record::{Kind, OptionSpec, Spec};
use serde_json::{Map, Value as Json, json};

/// The JSON Schema (draft 2020-12) of a pipeline file, for editors and for other programs.
///
/// It says what a single value may be. What several values must be together (a score before what
/// needs it, one of two keys) only `goodput check` knows.
pub fn pipeline_schema() -> Json {
    schema(&Tables::program())
}

fn schema(tables: &Tables) -> Json {
    let mut writer = Writer::new();
    let mut properties = Map::new();
    for option in sections::HEAD {
        properties.insert(option.name.to_string(), writer.option(option));
    }
    let mut input = writer.object(sections::INPUT, None);
    input["properties"][sections::FIELDS] = fields();
    properties.insert(
        "inputs".to_string(),
        json!({ "type": "array", "minItems": 1, "items": input }),
    );
    let mut tokenizer = writer.object(sections::TOKENIZER, None);
    tokenizer["oneOf"] = json!([{ "required": ["file"] }, { "required": ["builtin"] }]);
    properties.insert("tokenizer".to_string(), tokenizer);
    properties.insert("stages".to_string(), writer.stages(tables));
    properties.insert(
        "order".to_string(),
        writer.variant(sections::ORDER.0, &tables.strategy_specs(), &[]),
    );
    properties.insert(
        "pack".to_string(),
        writer.variant(sections::PACK.0, &tables.packer_specs(), &[]),
    );
    properties.insert("output".to_string(), writer.object(sections::OUTPUT, None));
    for (name, doc) in sections::TOP_KEYS {
        properties[*name] = described(properties[*name].take(), doc);
    }
    let definitions = writer.finish();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "goodput pipeline",
        "type": "object",
        "properties": properties,
        "required": ["version", "name", "seed", "inputs", "tokenizer", "output"],
        "additionalProperties": false,
        "$defs": definitions,
    })
}

/// The JSON Schema (draft 2020-12) of a measure file, as [`pipeline_schema`].
pub fn measure_schema() -> Json {
    let mut writer = Writer::new();
    let sections: Vec<(&str, Json)> = measure::SECTIONS
        .iter()
        .map(|(name, doc, options)| (*name, described(writer.object(options, None), doc)))
        .collect();
    let mut run = writer.object(measure::RUN, None);
    let mut whole = writer.object(measure::HEAD, None);
    for (name, section) in &sections {
        run["properties"][*name] = section.clone();
        whole["properties"][*name] = section.clone();
    }
    whole["properties"]["progress"] = described(
        writer.object(measure::PROGRESS, None),
        measure::PROGRESS_DOC,
    );
    whole["properties"]["runs"] = described(
        json!({ "type": "array", "minItems": 1, "items": run }),
        measure::RUNS_DOC,
    );
    if let Some(required) = whole["required"].as_array_mut() {
        required.push(json!("runs"));
    }
    whole["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    whole["title"] = json!("goodput measure");
    whole["$defs"] = Json::Object(writer.finish());
    whole
}

struct Writer {
    definitions: Map<String, Json>,
    /// Named choices already defined: tag, names, key in the definitions.
    families: Vec<(&'static str, Vec<&'static str>, String)>,
}

impl Writer {
    fn new() -> Writer {
        Writer {
            definitions: Map::new(),
            families: Vec::new(),
        }
    }

    /// The definitions, with those that every file has.
    fn finish(mut self) -> Map<String, Json> {
        self.definitions.insert(
            "variable".to_string(),
            json!({ "type": "string", "pattern": "\\$\\{[^}]*\\}" }),
        );
        self.definitions.insert(
            "written_number".to_string(),
            json!({
                "description": "A number with '_' between digits or an exponent, which some readers of YAML take for a text",
                "type": "string",
                "pattern": "^[+-]?([0-9]+(_[0-9]+)+(\\.[0-9]+)?|[0-9]+(\\.[0-9]+)?[eE][+-]?[0-9]+)$"
            }),
        );
        self.definitions.insert(
            "size".to_string(),
            json!({
                "description": "A whole number with a unit, such as 64MiB",
                "type": "string",
                "pattern": "^[0-9]+(_[0-9]+)* *([KMGT]iB|[kKMGT]?B)$"
            }),
        );
        self.definitions
    }

    /// A mapping of options; `named` adds the key that names a choice.
    fn object(&mut self, options: &'static [OptionSpec], named: Option<(&str, &str)>) -> Json {
        let mut properties = Map::new();
        let mut required = Vec::new();
        if let Some((tag, name)) = named {
            properties.insert(tag.to_string(), json!({ "const": name }));
            required.push(tag);
        }
        for option in options {
            properties.insert(option.name.to_string(), self.option(option));
            if option.default.is_none() {
                required.push(option.name);
            }
        }
        let mut object =
            json!({ "type": "object", "properties": properties, "additionalProperties": false });
        if !required.is_empty() {
            object["required"] = json!(required);
        }
        object
    }

    fn option(&mut self, option: &'static OptionSpec) -> Json {
        let mut forms = self.forms(option);
        if option.default == Some("null") {
            forms.push(json!({ "type": "null" }));
        }
        let mut schema = match forms.len() {
            1 => forms.remove(0),
            _ => json!({ "anyOf": forms }),
        };
        if let Some(default) = option.default.and_then(default) {
            schema["default"] = default;
        }
        described(schema, option.doc)
    }

    /// The forms that a value may take, besides nothing.
    fn forms(&mut self, option: &'static OptionSpec) -> Vec<Json> {
        let reference = |name: &str| json!({ "$ref": format!("#/$defs/{name}") });
        let text = json!({ "type": "string" });
        match &option.kind {
            Kind::Integer { min, max } => {
                let mut integer = json!({ "type": "integer", "minimum": min });
                if *max < u64::MAX {
                    integer["maximum"] = json!(max);
                }
                let mut forms = vec![integer, reference("written_number"), reference("variable")];
                if option.name.ends_with("_bytes") {
                    forms.insert(1, reference("size"));
                }
                forms
            }
            Kind::Number { min, max } => {
                let mut number = json!({ "type": "number" });
                if *min > f64::MIN {
                    number["minimum"] = json!(min);
                }
                if *max < f64::MAX {
                    number["maximum"] = json!(max);
                }
                vec![number, reference("written_number"), reference("variable")]
            }
            Kind::Bool => vec![json!({ "type": "boolean" }), reference("variable")],
            Kind::Choice(words) => vec![json!({ "enum": words }), reference("variable")],
            Kind::SortKey => vec![json!({ "type": "string", "examples": global::SORT_KEYS })],
            Kind::Text => vec![text],
            Kind::Path => vec![json!({ "type": "string", "minLength": 1 })],
            Kind::TextList => vec![text.clone(), json!({ "type": "array", "items": text })],
            Kind::Globs => {
                let glob = json!({ "type": "string", "minLength": 1 });
                vec![
                    glob.clone(),
                    json!({ "type": "array", "items": glob, "minItems": 1 }),
                ]
            }
            Kind::Folders => {
                let folder = json!({ "type": "string", "minLength": 1 });
                vec![folder.clone(), json!({ "type": "array", "items": folder })]
            }
            Kind::Variant { tag, specs } => vec![self.variant(tag, &specs(), &[])],
        }
    }

    /// A reference to the definition of a named choice, which may contain itself. `shared` are options that
    /// each of them has besides its own.
    fn variant(
        &mut self,
        tag: &'static str,
        specs: &[&'static Spec],
        shared: &'static [OptionSpec],
    ) -> Json {
        let names: Vec<&'static str> = specs.iter().map(|spec| spec.name).collect();
        let known = self
            .families
            .iter()
            .find(|(known_tag, known_names, _)| *known_tag == tag && *known_names == names);
        if let Some((_, _, key)) = known {
            return json!({ "$ref": format!("#/$defs/{key}") });
        }
        let key = match self
            .families
            .iter()
            .filter(|(known_tag, ..)| *known_tag == tag)
            .count()
        {
            0 => tag.to_string(),
            earlier => format!("{tag}_{}", earlier + 1),
        };
        self.families.push((tag, names, key.clone()));
        let choices: Vec<Json> = specs
            .iter()
            .map(|spec| {
                let mut object = self.object(spec.options, Some((tag, spec.name)));
                for option in shared {
                    object["properties"][option.name] = self.option(option);
                }
                described(object, spec.summary)
            })
            .collect();
        self.definitions.insert(
            key.clone(),
            match choices.is_empty() {
                true => json!({ "not": {} }),
                false => json!({ "oneOf": choices }),
            },
        );
        json!({ "$ref": format!("#/$defs/{key}") })
    }

    fn stages(&mut self, tables: &Tables) -> Json {
        let mut forms = Vec::new();
        let mut bare = Vec::new();
        for stage in tables.stage_specs() {
            let name = stage.spec.name;
            let options = match &stage.choices {
                Some((tag, specs)) => self.variant(tag, specs, stage.spec.options),
                None => {
                    let object = self.object(stage.spec.options, None);
                    match object.get("required") {
                        Some(_) => object,
                        None => {
                            bare.push(name);
                            json!({ "anyOf": [object, { "type": "null" }] })
                        }
                    }
                }
            };
            let form = json!({
                "type": "object",
                "properties": { name: options },
                "required": [name],
                "additionalProperties": false,
            });
            forms.push(described(form, stage.spec.summary));
        }
        forms.push(json!({ "enum": bare }));
        json!({ "type": ["array", "null"], "items": { "oneOf": forms } })
    }
}

fn fields() -> Json {
    let kinds: Vec<&str> = crate::record::FieldType::NAMES
        .iter()
        .map(|(name, _)| *name)
        .collect();
    json!({
        "description": sections::FIELDS_DOC,
        "type": "object",
        "propertyNames": { "not": { "enum": sections::RESERVED_COLUMNS } },
        "additionalProperties": { "anyOf": [
            { "enum": kinds },
            {
                "type": "object",
                "properties": { "path": { "type": "string", "minLength": 1 }, "type": { "enum": kinds } },
                "required": ["path", "type"],
                "additionalProperties": false,
            },
        ] },
    })
}

/// Draft 2020-12 allows a description beside a reference.
fn described(mut schema: Json, doc: &str) -> Json {
    if !doc.is_empty() {
        schema["description"] = json!(doc);
    }
    schema
}

/// A default of a table as JSON; `None` for nothing.
fn default(yaml: &str) -> Option<Json> {
    let node = parse(yaml, 0, &mut Vec::new())?;
    match to_json(&node) {
        Json::Null => None,
        json => Some(json),
    }
}

fn to_json(node: &Node) -> Json {
    match &node.shape {
        Shape::Scalar { text, plain: false } => json!(text),
        Shape::Scalar { text, plain: true } => match scalar::plain(text) {
            scalar::Plain::Null | scalar::Plain::NotFinite => Json::Null,
            scalar::Plain::Bool(value) => json!(value),
            scalar::Plain::Number(number) => match number.as_whole(text) {
                Some(whole) => json!(whole),
                None => json!(number.as_f64()),
            },
            scalar::Plain::Text => json!(text),
        },
        Shape::List(items) => items.iter().map(to_json).collect(),
        Shape::Map(entries) => Json::Object(
            entries
                .iter()
                .map(|entry| (entry.key.clone(), to_json(&entry.value)))
                .collect(),
        ),
        Shape::Refused => Json::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_schema_is_that_of_the_tables() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schemas/pipeline.schema.json");
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        let committed: Json = serde_json::from_str(&committed).unwrap_or(Json::Null);
        assert!(
            committed == pipeline_schema(),
            "schemas/pipeline.schema.json is not what the tables say; renew it: \
             goodput schema pipeline > schemas/pipeline.schema.json"
        );
    }

    #[test]
    fn the_committed_measure_schema_is_that_of_the_tables() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schemas/measure.schema.json");
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        let committed: Json = serde_json::from_str(&committed).unwrap_or(Json::Null);
        assert!(
            committed == measure_schema(),
            "schemas/measure.schema.json is not what the tables say; renew it: \
             goodput schema measure > schemas/measure.schema.json"
        );
    }

    #[test]
    fn every_reference_leads_to_a_definition() {
        let schema = schema(&super::super::tests::tables());
        let text = schema.to_string();
        let mut references = 0;
        for part in text.split("\"#/$defs/").skip(1) {
            let name = part.split('"').next().expect("split gives one part");
            assert!(
                schema["$defs"].get(name).is_some(),
                "no definition '{name}'"
            );
            references += 1;
        }
        assert!(references > 5);
    }

    #[test]
    fn bounds_defaults_and_required_keys_come_from_the_tables() {
        let schema = schema(&super::super::tests::tables());
        let input = &schema["properties"]["inputs"]["items"];
        assert_eq!(input["required"], json!(["path", "source"]));
        assert_eq!(input["additionalProperties"], json!(false));
        assert_eq!(
            input["properties"]["max_document_bytes"]["default"],
            json!("64MiB")
        );
        let output = &schema["properties"]["output"]["properties"];
        assert_eq!(
            output["rejects"]["anyOf"][0]["enum"],
            json!(["none", "tokens", "text"])
        );
        assert_eq!(output["shard_tokens"]["default"], json!(64_000_000));
        assert_eq!(output["shard_tokens"]["anyOf"][0]["minimum"], json!(1));
        // An order inside an order is the same definition.
        let orders = schema["$defs"]["strategy"]["oneOf"]
            .as_array()
            .expect("a list");
        let warmup = orders
            .iter()
            .find(|order| order["properties"]["strategy"]["const"] == "warmup")
            .expect("listed");
        assert_eq!(
            warmup["properties"]["inner"]["$ref"],
            json!("#/$defs/strategy")
        );
    }
}
